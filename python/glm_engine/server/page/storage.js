const NOTHING_KEPT = { getItem: () => null, setItem: () => undefined, removeItem: () => undefined };

function storage(kind) {
  try {
    return window[kind];
  } catch {
    return NOTHING_KEPT;
  }
}

export const lasting = storage("localStorage");
export const ofThisTab = storage("sessionStorage");
