// A tab that stays beside the one that is open, with the same layer selected in both.

class Pin {
  constructor(tabs, button) {
    Object.assign(this, { tabs, button, index: null, isMirroring: false });
    tabs.forEach((tab) => this.join(tab));
  }

  join(tab) {
    tab.listeners.push((selection) => this.mirror(tab, selection));
  }

  isBeside(index) {
    return this.index !== null && this.index !== index;
  }

  // Shows the tab that is open and the pinned one.
  show(open) {
    document.getElementById('main').classList.toggle('beside', this.isBeside(open));
    this.tabs.forEach((tab, at) => { tab.article.hidden = at !== open && at !== this.index; });
    if (this.button) {
      this.button.setAttribute('aria-pressed', String(this.index !== null));
      this.button.textContent = this.index === null ? 'pin' : 'unpin';
    }
    for (const at of new Set([open, this.index ?? open])) this.tabs[at].theme();
  }

  // Layers are known by their paths: tabs of different steps may number them differently.
  mirror(tab, { module }) {
    if (this.index === null || this.isMirroring) return;
    this.isMirroring = true;
    const path = module === null ? null : tab.modules.path[module];
    for (const other of this.tabs.filter((one) => one !== tab && !one.article.hidden)) {
      const at = path === null ? -1 : other.modules.path.indexOf(path);
      other.select({ module: at < 0 ? null : at, parameter: null, tensor: null });
    }
    this.isMirroring = false;
  }
}
