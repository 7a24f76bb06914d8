class Kept {
  constructor(kind) {
    this.kind = kind;
  }

  getItem(name) {
    try {
      return window[this.kind].getItem(name);
    } catch {
      return null;
    }
  }

  setItem(name, value) {
    try {
      window[this.kind].setItem(name, value);
      return true;
    } catch {
      return false;
    }
  }

  removeItem(name) {
    try {
      window[this.kind].removeItem(name);
    } catch {
      return;
    }
  }
}

export const lasting = new Kept("localStorage");
export const ofThisTab = new Kept("sessionStorage");
