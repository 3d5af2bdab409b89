// The list of recordings: finding, comparing two by clicks, and ages that go on.

const main = document.getElementById('main');
const find = document.querySelector('.find input');
const chosen = { bar: document.querySelector('.selected'), told: document.querySelector('.crumbs'), base: null };

const rowOf = (key) => main.querySelector(`tr[data-key="${CSS.escape(key)}"]`);

function showFound() {
  const typed = find?.value.trim().toLowerCase() ?? '';
  for (const row of main.querySelectorAll('tr[data-key]')) {
    row.hidden = !row.dataset.name.toLowerCase().includes(typed);
  }
}

function choose(key) {
  const row = key && rowOf(key);
  chosen.base = row ? key : null;
  if (!chosen.bar) return;
  chosen.bar.hidden = !row;
  chosen.told.textContent = row ? `comparing ${row.dataset.name}: choose the other one` : '';
  for (const one of main.querySelectorAll('tr[data-key]')) {
    one.classList.toggle('base', one === row);
    const button = one.querySelector('.select');
    if (!button) continue;
    button.setAttribute('aria-pressed', String(one === row));
    button.textContent = row && one !== row ? 'with this one' : 'compare';
  }
}

function showAges() {
  for (const time of main.querySelectorAll('time[data-at]')) {
    const seconds = Date.now() / 1000 - Number(time.dataset.at);
    const unit = [[86400, 'day'], [3600, 'h'], [60, 'min']].find(([size]) => seconds >= size);
    const count = unit && Math.floor(seconds / unit[0]);
    time.textContent = unit ? `${count} ${unit[1]}${unit[1] === 'day' && count > 1 ? 's' : ''} ago` : 'now';
    time.title = new Date(1000 * Number(time.dataset.at)).toLocaleString();
  }
}

// Newer rows replace these: the listener is on what stays.
document.addEventListener('click', (event) => {
  const button = event.target.closest?.('.pair .select');
  if (button) {
    const { key } = button.closest('tr').dataset;
    if (!chosen.base || chosen.base === key) choose(chosen.base ? null : key);
    else location.href = `c/${chosen.base}/${key}`;
  } else if (event.target.closest?.('.selected .clear')) choose(null);
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') choose(null);
  else if (event.key === '/' && event.target !== find && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    find?.focus();
  }
});
document.querySelector('.find')?.addEventListener('submit', (event) => event.preventDefault());
find?.addEventListener('input', showFound);

// Where a message was shown there may be a report now: that needs its own scripts.
function renewList(next) {
  const table = next.querySelector('.library');
  const isList = Boolean(main.querySelector('.library'));
  if (Boolean(table) !== isList || next.querySelector('.tab-panel')) {
    location.reload();
    return;
  }
  main.replaceChildren(...document.importNode(next.getElementById('main'), true).childNodes);
  choose(chosen.base);
  showFound();
  showAges();
}

choose(new URLSearchParams(location.search).get('base'));
showAges();
setInterval(showAges, 30_000);
new Following(renewList);
