// Gives names to the buttons of the sidebar, which the theme leaves without, so that a
// screen reader can say what they do.
for (const button of document.querySelectorAll(".bd-sidebar-primary summary")) {
  const page = button.closest("li")?.querySelector("a")?.textContent.trim() || "this section";
  button.setAttribute("aria-label", `Pages below ${page}`);
}
