// What the theme makes after the page is there: each row of buttons at a block of code gets a name of its own, and what is wider than its box can be
// scrolled with the keys.
(() => {
  const look = () => {
    document.querySelectorAll(".md-code__nav:not([aria-label])").forEach(e => e.setAttribute("aria-label", "Code " + (e.parentElement.id || "block")));
    document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach(e => { if (e.scrollWidth > e.clientWidth) e.tabIndex = 0; });
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  addEventListener("resize", look);
  addEventListener("load", look);
  look();
})();
