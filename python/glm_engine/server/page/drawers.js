import { find } from "./elements.js";

const NARROW = { sidebar: "(max-width: 74.99rem)", panel: "(max-width: 55.99rem)" };

function adapt(drawer, isNarrow) {
  if (isNarrow) {
    drawer.popover = "auto";
  } else {
    drawer.removeAttribute("popover");
  }
}

export function openDrawers() {
  for (const [id, query] of Object.entries(NARROW)) {
    const narrow = matchMedia(query);
    narrow.addEventListener("change", () => adapt(find(id), narrow.matches));
    adapt(find(id), narrow.matches);
  }
}

export function closeDrawer(id) {
  if (find(id).matches(":popover-open")) {
    find(id).hidePopover();
  }
}
