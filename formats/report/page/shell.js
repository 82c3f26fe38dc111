// The head of the page, its tabs, the search, and the address.
function show() {
  byId("status").textContent = "";
  const parts = views[state.view].parts().filter(e => e !== null);
  byId("view").replaceChildren(...parts);
  for (const box of byId("view").querySelectorAll(".scroll")) fitTable(box);
  if (!parts.length) byId("view").append(make("p", { class: "note" }, "Nothing here matches the search."));
  for (const tab of byId("tabs").children) {
    const selected = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
  }
}
// How much each tab has of what is searched for.
function count() {
  const found = [];
  for (const tab of byId("tabs").children) {
    const n = state.search ? views[tab.dataset.view].count() : 0;
    tab.querySelector(".count").textContent = state.search ? " " + cell(n) : "";
    tab.classList.toggle("none", state.search !== "" && n === 0);
    if (n) found.push(tab.dataset.view + " " + cell(n));
  }
  if (state.search) byId("status").textContent = "Found: " + (found.join(", ") || "nothing");
}
function search(text) {
  state.search = text.trim().toLowerCase();
  show();
  count();
}
const addressOf = (view, place) => encodeURIComponent(view) + (place ? "/" + place : "");
// Shows a view, and with a place (places.js) what lies there. `visit`: the address becomes one to which the browser goes back.
function open(view, { place = null, visit = true, is_kept = false } = {}) {
  state.view = view;
  if (place) lane.wanted = place.split(".").map(Number);
  const address = "#" + addressOf(view, place);
  // Where a page has no address of its own, as in the frame of a notebook or of a CI's viewer, this is refused: it goes without.
  if (!is_kept) try { history[visit && location.hash && location.hash !== address ? "pushState" : "replaceState"](null, "", address); } catch { /* as said */ }
  show();
}
// The address names a view, or is not one of ours ("#%").
function openAddress() {
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* as said */ }
  const [view, place] = wanted.split("/");
  if (Object.hasOwn(views, view)) open(view, { place: view === "Timeline" && /^\d+\.\d+\.\d+$/.test(place || "") ? place : null, is_kept: true });
  else open("Summary", { visit: false });
}
byId("title").textContent = data.title[0];
byId("about").textContent = data.title.slice(1).join(" · ");
byId("headline").textContent = data.report.headline;
for (const view of Object.keys(views)) byId("tabs").append(make("button", { role: "tab", "data-view": view, onclick: () => open(view) }, view, make("span", { class: "count" })));
byId("search").addEventListener("input", e => search(e.target.value));
addEventListener("hashchange", openAddress);
document.addEventListener("keydown", e => {
  const at = document.activeElement, step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (e.key === "/" && !["INPUT", "SELECT"].includes(at.tagName)) { e.preventDefault(); byId("search").focus(); }
  if (e.key === "Escape" && at.id === "search") { at.value = ""; search(""); }
  else if (e.key === "Escape" && state.view === "Flame graph" && state.root) {
    const from = state.root;
    state.root = data.flame.threads[state.thread].frames[from][0];
    show();
    document.querySelector(".flame [data-frame='" + from + "']").focus();
  }
  const group = step && at.closest("nav, .flame");
  if (!group) return;
  e.preventDefault();
  const next = (at.parentNode === group) && group.children[[...group.children].indexOf(at) + step];
  if (next) { next.focus(); if (group.tagName === "NAV") open(next.dataset.view, { visit: false }); }
});
// Charts and tables have the width of the window.
let drawn = innerWidth, later = 0;
addEventListener("resize", () => {
  clearTimeout(later);
  later = setTimeout(() => { if (innerWidth !== drawn && state.view !== "Timeline") show(); drawn = innerWidth; }, 150);
});
openAddress();
