// Follows the server: fetches the page again when it has changed, as long as it is in view.

class Following {
  // `renew` gets the newer document; it may change what is shown, and nothing else.
  constructor(renew) {
    Object.assign(this, { renew, source: null, isBusy: false, isHeld: false, wanted: null });
    document.addEventListener('visibilitychange', () => this.attend());
    // What is being dragged must not be replaced under the pointer.
    document.addEventListener('pointerdown', () => { this.isHeld = true; }, true);
    for (const end of ['pointerup', 'pointercancel']) {
      document.addEventListener(end, () => {
        this.isHeld = false;
        // The click that follows needs its target still in the page.
        setTimeout(() => this.refresh());
      }, true);
    }
    this.attend();
  }

  // A browser has few connections to one server: pages that nobody sees hold none.
  attend() {
    if (document.hidden) {
      this.source?.close();
      this.source = null;
    } else if (!this.source) {
      this.source = new EventSource(document.body.dataset.events);
      this.source.onopen = () => this.tell('');
      this.source.onerror = () => this.tell(STOPPED);
      this.source.onmessage = ({ data }) => {
        this.wanted = data;
        this.refresh();
      };
    }
  }

  async refresh() {
    if (this.isBusy || this.isHeld || !this.wanted || this.wanted === document.body.dataset.stamp) return;
    this.isBusy = true;
    try {
      const answer = await fetch(location.href.split('#')[0], { cache: 'no-store' });
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (!next.body.dataset.stamp) throw new Error(`status ${answer.status}`);
      this.wanted = null;
      document.body.dataset.stamp = next.body.dataset.stamp;
      // What is shown is worth more than why there is nothing newer.
      const reason = next.querySelector('.message p.warning')?.textContent;
      this.tell(document.querySelector('.message') ? '' : reason ?? '');
      if (!reason || document.querySelector('.message')) this.renew(next);
    } catch {
      this.tell(STOPPED);
    } finally {
      this.isBusy = false;
    }
  }

  // Says why what is shown is no longer updated.
  tell(reason) {
    let told = document.querySelector('.bar .offline');
    if (!reason) told?.remove();
    else {
      if (!told) {
        told = document.createElement('span');
        told.className = 'state offline';
        told.setAttribute('role', 'status');
        document.querySelector('.served, .bar .title').after(told);
      }
      told.textContent = reason;
    }
  }
}
const STOPPED = 'gradscope view has stopped: this page is no longer updated';
