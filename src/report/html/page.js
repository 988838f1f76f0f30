'use strict';
// Makes a page one to use: a filter, tables that sort, arrows in grids, light and dark. All content is in the page without it.
// Text from the page goes back into the page as text only.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/** Makes an element with attributes, listeners (keys that begin with "on") and children. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const anchorOf = (link) => link.getAttribute('href').slice(1);

// Heads: what the page says of each, by its anchor.

const heads = new Map();
for (const section of all('section.stack')) {
  for (const figure of all('figure[data-head]', section)) {
    const [, layer, head] = figure.dataset.head.match(/^L(\d+)H(\d+)$/).map(Number);
    heads.set(figure.id, { id: figure.id, name: figure.dataset.head, layer, head, section, figure, words: '', type: '', checks: '' });
  }
  for (const row of all('details.heads tbody tr', section)) {
    const of = heads.get(anchorOf(row.querySelector('th a')));
    if (!of) continue;
    const [type, checks] = all('td.text', row).map((cell) => cell.textContent);
    Object.assign(of, { row, type: type === '\u2013' ? '' : type, checks, words: `${of.id} ${type} ${checks}`.toLowerCase() });
  }
}
for (const cell of all('.grid td a')) {
  const of = heads.get(anchorOf(cell));
  if (of) of.cell = cell;
}

// Numbers of tables.

/** The number that a cell begins with, its text, or undefined where it is empty. NaN is the worst that a number can be. */
function valueOf(cell) {
  const text = cell ? cell.textContent.trim().replace('\u2212', '-') : '';
  if (text === '' || text === '\u2013') return undefined;
  if (text === 'NaN' || text === 'inf') return Infinity;
  if (text === '-inf') return -Infinity;
  const number = parseFloat(text);
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a === b ? 0 : a - b;
  if (typeof a === 'number') return -1;
  if (typeof b === 'number') return 1;
  return a.localeCompare(b, 'en', { numeric: true });
}

// Sorting: a click on a heading sorts, a second one turns the order round, a third gives the page's own order back.

for (const table of all('table.figures, table.sides')) {
  const body = table.tBodies[0];
  const original = body ? [...body.rows] : [];
  if (original.length < 2) continue;
  const headings = all('thead th', table);
  headings.forEach((heading, nth) => {
    if (heading.textContent.trim() === '') return;
    const button = make('button', { type: 'button', class: 'sort' }, ...heading.childNodes);
    heading.append(button);
    button.addEventListener('click', () => {
      const keyed = original.map((row) => [valueOf(row.cells[nth]), row]);
      const first = keyed.some(([value]) => typeof value === 'number') ? 'descending' : 'ascending';
      const second = first === 'descending' ? 'ascending' : 'descending';
      const now = heading.getAttribute('aria-sort');
      const next = now === first ? second : now === second ? null : first;
      for (const other of headings) other.removeAttribute('aria-sort');
      if (next) {
        heading.setAttribute('aria-sort', next);
        const sign = next === 'descending' ? -1 : 1;
        // Cells without a value come last in both orders.
        keyed.sort(([a], [b]) => a === undefined || b === undefined
          ? (a === undefined) - (b === undefined) : sign * compare(a, b));
      }
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

// The filter.

/** Whether a head has what one word of the filter asks for. */
function hasTerm(of, term) {
  const place = term.match(/^(?:l(\d+))?(?:h(\d+))?$/);
  if (place) return [[place[1], of.layer], [place[2], of.head]].every(([asked, is]) => asked === undefined || Number(asked) === is);
  const asked = term.match(/^([a-z_]+)(<=|>=|<|>)(-?[\d.]+(?:e-?\d+)?)$/);
  if (!asked) return of.words.includes(term);
  const ids = of.row ? all('thead th', of.row.closest('table')).map((heading) => heading.dataset.id || '') : [];
  const exact = ids.indexOf(asked[1]);
  const at = exact >= 0 ? exact : ids.findIndex((id) => id.startsWith(asked[1]));
  const value = at < 0 ? undefined : valueOf(of.row.cells[at]);
  if (typeof value !== 'number') return false;
  const limit = Number(asked[3]);
  return { '<': value < limit, '>': value > limit, '<=': value <= limit, '>=': value >= limit }[asked[2]];
}

const shown = make('output', { class: 'quiet', 'aria-live': 'polite' });

function filter(text) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  const isIn = (of) => terms.every((term) => hasTerm(of, term));
  let n = 0;
  for (const of of heads.values()) {
    const is = isIn(of);
    n += is;
    of.isOff = !is;
    of.figure.classList.toggle('off', !is);
    if (of.cell) of.cell.parentElement.classList.toggle('off', !is);
    if (of.row) of.row.hidden = !is;
  }
  let nRows = 0;
  const rows = all(heads.size > 0 ? '.findings tbody tr' : 'main tbody tr');
  for (const row of rows) {
    const link = row.querySelector('.place a');
    const of = link && heads.get(anchorOf(link));
    const words = row.textContent.toLowerCase();
    row.hidden = !(terms.every((term) => words.includes(term)) || (of && isIn(of)));
    nRows += !row.hidden;
  }
  if (terms.length > 0) {
    for (const details of all('.heads, .more')) details.open = true;
  }
  const [of, what, most] = heads.size > 0 ? [n, 'heads', heads.size] : [nRows, 'rows', rows.length];
  shown.textContent = terms.length === 0 ? '' : `${of} of ${most} ${what}`;
}

const input = make('input', {
  type: 'search', 'aria-label': 'Filter', autocomplete: 'off', spellcheck: 'false',
  placeholder: heads.size > 0 ? 'L6H3, induction, dead-head, entropy>0.9' : 'words of a row',
  oninput: () => filter(input.value),
});

// Light and dark.

const wantsDark = window.matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (document.documentElement.dataset.theme || (wantsDark.matches ? 'dark' : 'light')) === 'dark';
const theme = make('button', {
  type: 'button',
  onclick: () => {
    document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    nameTheme();
  },
});
function nameTheme() {
  theme.textContent = isDark() ? 'Light' : 'Dark';
}
nameTheme();
wantsDark.addEventListener('change', nameTheme);

const bar = make('div', { class: 'bar' });
if (heads.size > 0 || all('main tbody tr').length > 1) {
  bar.append(make('label', { role: 'search' }, 'Filter ', input), shown);
}
bar.append(theme);
document.body.prepend(bar);

document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof Element && event.target.closest('input, textarea, select');
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/' && !isTyping && !document.querySelector('dialog[open]') && input.isConnected) {
    event.preventDefault();
    input.focus();
    input.select();
  } else if (event.key === 'Escape' && event.target === input) {
    input.value = '';
    filter('');
    input.blur();
  }
});

// Grids: one stop of the Tab key each, and arrows inside.

for (const grid of all('table.grid')) {
  const rows = all('tbody tr', grid).map((row) => all('td a', row)).filter((links) => links.length > 0);
  if (rows.length === 0) continue;
  const links = rows.flat();
  const stop = (link) => {
    for (const other of links) other.tabIndex = other === link ? 0 : -1;
  };
  stop(links[0]);
  grid.addEventListener('focusin', (event) => {
    if (links.includes(event.target)) stop(event.target);
  });
  grid.addEventListener('keydown', (event) => {
    const y = rows.findIndex((row) => row.includes(event.target));
    if (y < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const x = rows[y].indexOf(event.target);
    const to = {
      ArrowUp: [y - 1, x], ArrowDown: [y + 1, x], ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1],
      Home: [y, 0], End: [y, rows[y].length - 1],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const row = rows[Math.max(0, Math.min(rows.length - 1, to[0]))];
    row[Math.max(0, Math.min(row.length - 1, to[1]))].focus();
  });
}
