// Manuals of rules: drawers that a click on a rule's code opens.

const manualOf = (rule) => document.getElementById(`manual-${rule}`);

const shownManual = () => document.querySelector('dialog.manual[open]')?.id.slice('manual-'.length) ?? null;

function showManual(rule) {
  const wanted = rule === null ? null : manualOf(rule);
  for (const open of document.querySelectorAll('dialog.manual[open]')) if (open !== wanted) open.close();
  if (!wanted || wanted.open) return;
  wanted.showModal();
  wanted.scrollTop = 0;
}

// `changed` is called after a manual was opened or closed.
function listenForManuals(changed) {
  // Before the row or the heading that the code stands in is clicked.
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('[data-rule]');
    if (link) {
      event.preventDefault();
      event.stopPropagation();
      showManual(link.dataset.rule);
      changed();
    } else if (event.target.matches?.('dialog.manual')) event.target.close();
  }, true);
  // The event does not bubble.
  document.addEventListener('close', (event) => {
    if (event.target.matches?.('dialog.manual')) changed();
  }, true);
}
