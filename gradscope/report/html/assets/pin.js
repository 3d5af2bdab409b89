// A tab that stays beside the one that is open, with the same layer selected in both.

class Pin {
  constructor(sheets, button) {
    Object.assign(this, { sheets, button, place: null, isMirroring: false });
    for (const sheet of sheets) sheet.listeners.push((selection) => this.mirror(sheet, selection));
  }

  isBeside(place) {
    return this.place !== null && this.place !== place;
  }

  // Shows the tab that is open and the pinned one.
  show(open) {
    document.getElementById('main').classList.toggle('beside', this.isBeside(open));
    this.sheets.forEach((sheet, at) => { sheet.article.hidden = at !== open && at !== this.place; });
    if (this.button) {
      this.button.setAttribute('aria-pressed', String(this.place !== null));
      this.button.textContent = this.place === null ? 'pin' : 'unpin';
    }
    for (const at of new Set([open, this.place ?? open])) this.sheets[at].theme();
  }

  // Layers are known by their paths: tabs of different steps may number them differently.
  mirror(sheet, { module }) {
    if (this.place === null || this.isMirroring) return;
    this.isMirroring = true;
    const path = module === null ? null : sheet.modules.path[module];
    for (const other of this.sheets.filter((one) => one !== sheet && !one.article.hidden)) {
      const at = path === null ? -1 : other.modules.path.indexOf(path);
      other.select({ module: at < 0 ? null : at, parameter: null, tensor: null });
    }
    this.isMirroring = false;
  }
}
