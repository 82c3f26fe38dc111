// Where the timeline has what a row of a table is about: the longest slice of that name. A place is "VIEW.ROW.SLICE", and part of an address.
const kPlacesOf = { ops: ["operators", "annotations", "communication"], modules: ["modules"], kernels: ["kernels", "copies", "communication"], python: ["Python"] };
let places = null;
const placeKey = (group, name, path) => group + "\0" + name + "\0" + path;
function findPlaces() {
  const longest = new Map(), names = data.timeline.names;
  data.timeline.views.forEach((view, v) => view.rows.forEach((row, r) => {
    for (let i = 0; i < row.slices.length; i += kFields) {
      const kind = kKinds[row.slices[i + 3]], ns = row.slices[i + 1];
      if (!kind) continue;
      const key = placeKey(kind.group, names[row.slices[i + 2]], kind.group === "modules" ? names[row.slices[i + 4]] : "");
      if (!longest.has(key) || longest.get(key).ns < ns) longest.set(key, { ns, place: v + "." + r + "." + i / kFields });
    }
  }));
  return longest;
}
// null: the timeline does not have it.
function placeOf(table, row) {
  const groups = data.timeline ? kPlacesOf[table.name] : null;
  if (!groups) return null;
  places = places || findPlaces();
  const found = groups.map(group => places.get(placeKey(group, row.name, group === "modules" ? row.path || "" : ""))).find(place => place);
  return found ? found.place : null;
}
// Not followed by the browser: in a frame that another page fills, an address is that page's.
const placeLink = (place, text) => make("a", { href: "#" + addressOf("Timeline", place), title: "in the timeline", onclick: e => {
  if (e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  open("Timeline", { place });
  document.querySelector(".lanes canvas").focus();
} }, text);
