// The map of a head with its tokens, over the page; and values under the pointer, on every map.

// Indices of a map's palette, as maps.rs writes them.
const MASKED = 0;
const NAN = 1;
const ABOVE_ONE = 2;
const FIRST = 3;

/** Most tokens that are named for one cell. */
const MOST_TOKENS = 6;

/** Reads the palette and the cells of a map: an indexed PNG of 8 bits without filters, as maps.rs writes it. */
async function decode(source) {
  const bytes = Uint8Array.from(atob(source.slice(source.indexOf(',') + 1)), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const packed = [];
  let palette, cols, rows;
  for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
    const body = bytes.subarray(at + 8, at + 8 + view.getUint32(at));
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (type === 'IHDR') [cols, rows] = [view.getUint32(at + 8), view.getUint32(at + 12)];
    if (type === 'PLTE') palette = body;
    if (type === 'IDAT') packed.push(body);
  }
  const unpacked = new Blob(packed).stream().pipeThrough(new DecompressionStream('deflate'));
  const lines = new Uint8Array(await new Response(unpacked).arrayBuffer());
  if (lines.length !== rows * (cols + 1)) throw new Error('a map of another form');
  return {
    rows, cols,
    levels: palette.length / 3 - FIRST,
    at: (row, col) => lines[row * (cols + 1) + 1 + col],
    colour: (index) => `rgb(${palette.subarray(3 * index, 3 * index + 3).join(' ')})`,
  };
}

/** The cells of a head's map; null where the browser cannot read them. */
function cellsOf(of) {
  of.cells ??= decode(of.figure.querySelector('img').src).catch(() => null);
  return of.cells;
}

/** The square root of a probability, which is what a map stores. */
const root = (cells, index) => (index - FIRST) / (cells.levels - 1);

/** The probability of a cell in words, with as many digits as its rounding leaves. */
function said(cells, index) {
  if (index === MASKED) return 'masked';
  if (index === NAN) return 'NaN';
  if (index === ABOVE_ONE) return 'above 1';
  const of = root(cells, index);
  const value = of * of;
  return value < 0.0005 ? '< 0.001' : value.toFixed(of / (cells.levels - 1) < 0.0006 ? 3 : 2);
}

/** The two axes of a head's map: queries, then keys. Tokens are known where their number is that of the map. */
function axesOf(of, cells) {
  const patterns = of.figure.closest('.patterns');
  const tiles = (of.figure.dataset.tile ?? patterns.dataset.tile).split(' ').map(Number);
  const sides = patterns.dataset.sides.split(' ').map(Number);
  const texts = all('.tokens', of.section.closest('.prompt'));
  return [0, 1].map((nth) => {
    const [tile, text] = [tiles[nth], texts[sides[nth]]];
    const n = text ? Number(text.dataset.n) : 0;
    const isKnown = Math.ceil(n / tile) === (nth === 0 ? cells.rows : cells.cols);
    const tokens = isKnown ? all('span', text).map((span) => span.textContent) : [];
    return { name: nth === 0 ? 'query' : 'key', tile, side: sides[nth], tokens, n: isKnown ? n : Infinity };
  });
}

/** A position of an axis with its tokens: 12, or 12 to 15 where a cell covers several. */
function position(axis, nth) {
  const first = nth * axis.tile;
  const last = Math.min(first + axis.tile, axis.n) - 1;
  const place = first === last ? `${axis.name} ${first}` : `${axis.name === 'key' ? 'keys' : 'queries'} ${first}\u2013${last}`;
  const words = make('span', {}, place);
  const tokens = axis.tokens.slice(first, last + 1);
  for (const token of tokens.slice(0, MOST_TOKENS)) {
    words.append(' ', make('bdi', { class: 'token' }, token.length > 40 ? `${token.slice(0, 39)}\u2026` : token));
  }
  if (tokens.length > MOST_TOKENS) words.append(' \u2026');
  return words;
}

function sentence(axes, cells, row, col) {
  const most = axes[0].tile * axes[1].tile > 1 ? 'largest ' : '';
  return [position(axes[0], row), ' \u2192 ', position(axes[1], col), ': ', make('b', {}, most + said(cells, cells.at(row, col)))];
}

/** The cell of a map under the pointer. */
function cellUnder(event, box, cells) {
  const { left, top, width, height } = box.getBoundingClientRect();
  const of = (at, size, n) => Math.max(0, Math.min(n - 1, Math.floor(at / size * n)));
  return [of(event.clientY - top, height, cells.rows), of(event.clientX - left, width, cells.cols)];
}

// Small maps: values under the pointer, and a click opens.

const tip = make('div', { class: 'tip', hidden: '' });
document.body.append(tip);
for (const of of heads.values()) {
  const image = of.figure.querySelector('img');
  const over = async (event) => {
    const cells = await cellsOf(of);
    if (!cells || !image.matches(':hover')) return;
    const [row, col] = cellUnder(event, image, cells);
    tip.replaceChildren(make('span', { class: 'quiet' }, `${of.name} `), ...sentence(axesOf(of, cells), cells, row, col));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  };
  image.addEventListener('pointermove', (event) => {
    if (event.pointerType === 'mouse') over(event);
  });
  image.addEventListener('pointerleave', () => { tip.hidden = true; });
  of.figure.classList.add('opens');
  of.figure.addEventListener('click', () => go(of.id));
}
addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });

// The head that is open, over the page.

const MOST_LABELS = 32;
const N_KEYS = 6;
let open = null;

/** Rows of the heads of a training, by their anchors: steps.js shows those. */
const series = new Map(all('.steps tbody tr[id]').map((row) => [row.id, row]));
for (const [id, row] of series) {
  const link = make('a', { href: `#${id}` }, ...row.cells[0].childNodes);
  row.cells[0].append(link);
}

const title = make('h2', { id: 'head-title' });
const about = make('span', { class: 'quiet' });
const content = make('div', { class: 'content' });
const dialog = make('dialog', { class: 'head', 'aria-labelledby': 'head-title' },
  make('div', { class: 'top' }, title, about,
    make('button', { type: 'button', onclick: () => step(-1), 'aria-label': 'Previous head', title: 'previous head (p)' }, '\u2190'),
    make('button', { type: 'button', onclick: () => step(1), 'aria-label': 'Next head', title: 'next head (n)' }, '\u2192'),
    make('button', { type: 'button', onclick: () => dialog.close(), 'aria-label': 'Close', title: 'close (Escape)' }, '\u2715')),
  content);
document.body.append(dialog);

/** Heads of the same stack and prompt that the filter leaves. */
const neighbours = (of) => [...heads.values()].filter((other) => other.section === of.section && (!other.isOff || other === of));

/** Whether an anchor is that of a head: one with a map, or a row of a training. */
const isHead = (id) => heads.has(id) || series.has(id);

function step(by) {
  const among = open.of ? neighbours(open.of).map((of) => of.id) : [...series.keys()].filter((id) => !series.get(id).hidden);
  const to = among[among.indexOf(open.of ? open.of.id : open.series) + by];
  if (to) go(to, true);
}

/** A column or row of labels beside the map, where there is room for each token. */
function labels(axis, n, kind) {
  const list = make('div', { class: `labels ${kind}`, 'aria-hidden': 'true' });
  if (axis.tile === 1 && n <= MOST_LABELS && axis.tokens.length === n) {
    list.append(...axis.tokens.map((token) => make('span', {}, make('bdi', {}, token))));
  }
  return list;
}

/** Tokens to choose queries from, or to see keys in. */
function text(axis, choose) {
  const spans = axis.tokens.map((token, nth) => {
    const span = make('span', {}, token);
    span.addEventListener('click', () => choose(Math.floor(nth / axis.tile)));
    return span;
  });
  return [make('p', { class: 'tokens' }, ...spans), spans];
}

function statistics(of) {
  if (!of.row) return [];
  const headings = all('thead th', of.row.closest('table'));
  const list = make('dl', { class: 'facts' });
  headings.forEach((heading, nth) => {
    if (!heading.dataset.id) return;
    list.append(make('div', { title: heading.title },
      make('dt', {}, heading.textContent), make('dd', {}, of.row.cells[nth].textContent)));
  });
  return [make('h3', {}, 'Statistics'), list];
}

function findings(of) {
  const rows = all('.findings tbody tr').filter((row) => {
    const link = row.querySelector('.place a');
    const at = link && heads.get(anchorOf(link));
    return at && at.name === of.name && at.section.dataset.stack === of.section.dataset.stack;
  });
  if (rows.length === 0) return [];
  const items = rows.map((row) => make('li', {},
    row.querySelector('.badge').cloneNode(true), ' ', make('b', {}, row.querySelector('th').textContent), ' ',
    row.cells[3].firstChild ? row.cells[3].firstChild.textContent : ''));
  return [make('h3', {}, 'Findings'), make('ul', { class: 'of-head' }, ...items)];
}

let turn = 0;

async function show(of) {
  const mine = ++turn;
  const cells = await cellsOf(of);
  // Another head was asked for meanwhile.
  if (mine !== turn) return null;
  title.textContent = of.name;
  about.textContent = [of.section.dataset.stack, of.type].filter(Boolean).join(' \u00b7 ');
  const source = of.figure.querySelector('img');
  const image = make('img', { src: source.src, alt: source.alt });
  if (!cells) {
    open = { of };
    content.replaceChildren(make('div', { class: 'plot' }, image), make('div', {}, ...findings(of), ...statistics(of)));
    return;
  }
  const axes = axesOf(of, cells);
  const across = make('i', { class: 'mark across' });
  const down = make('i', { class: 'mark down' });
  const board = make('div', { class: 'board', tabindex: '0', role: 'img', 'aria-label': `${source.alt}: arrow keys move` }, image, across, down);
  board.style.aspectRatio = String(Math.max(0.5, Math.min(2, cells.cols / cells.rows)));
  const reading = make('p', { class: 'reading', 'aria-live': 'polite' });
  const strongest = make('ol', { class: 'strongest' });
  const [keys, spans] = text(axes[1], (nth) => select(axes[0].side === axes[1].side ? Math.min(nth, cells.rows - 1) : open.row, nth));
  const queries = axes[0].side === axes[1].side ? [] : text(axes[0], (nth) => select(nth, open.col))[0];
  const heading = make('h3');
  let isFixed = false;

  function select(row, col) {
    Object.assign(open, { row, col });
    const shareOf = (nth, n) => `${100 * nth / n}%`;
    across.style.top = shareOf(row, cells.rows);
    across.style.height = shareOf(1, cells.rows);
    down.style.left = shareOf(col, cells.cols);
    down.style.width = shareOf(1, cells.cols);
    reading.replaceChildren(...sentence(axes, cells, row, col));
    heading.replaceChildren('Attention from ', position(axes[0], row));
    spans.forEach((span, nth) => {
      const index = cells.at(row, Math.floor(nth / axes[1].tile));
      const light = index < FIRST || root(cells, index) > 0.6;
      span.style.background = index === MASKED ? '' : cells.colour(index);
      // As wants_dark_text of colour.rs.
      span.style.color = index === MASKED ? '' : light ? '#101014' : '#f2f2f2';
      span.title = `${nth}: ${said(cells, index)}`;
      span.classList.toggle('here', axes[0].side === axes[1].side && Math.floor(nth / axes[0].tile) === row);
    });
    const order = Array.from({ length: cells.cols }, (_, nth) => nth).filter((nth) => cells.at(row, nth) > FIRST || cells.at(row, nth) === ABOVE_ONE);
    const size = (nth) => (cells.at(row, nth) === ABOVE_ONE ? 256 : cells.at(row, nth));
    order.sort((a, b) => size(b) - size(a) || a - b);
    strongest.replaceChildren(...order.slice(0, N_KEYS).map((nth) => make('li', {},
      make('b', {}, said(cells, cells.at(row, nth))), ' ', position(axes[1], nth))));
  }

  board.addEventListener('pointermove', (event) => {
    if (!isFixed && event.pointerType === 'mouse') select(...cellUnder(event, board, cells));
  });
  board.addEventListener('click', (event) => {
    const [row, col] = cellUnder(event, board, cells);
    isFixed = !(isFixed && row === open.row && col === open.col);
    board.classList.toggle('fixed', isFixed);
    select(row, col);
  });
  board.addEventListener('keydown', (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    isFixed = true;
    const within = (nth, n) => Math.max(0, Math.min(n - 1, nth));
    select(within(open.row + by[0], cells.rows), within(open.col + by[1], cells.cols));
  });

  const grain = axes[0].tile * axes[1].tile === 1 ? 'Each cell is a probability'
    : `Each cell is the largest probability of ${axes[0].tile} \u00d7 ${axes[1].tile} queries and keys`;
  const hint = `${grain}, rounded by at most ${of.figure.closest('.patterns').dataset.rounding}. Queries run down. A click holds the cell, arrow keys move it.`;
  // The query that was looked at stays in view from head to head of one shape.
  const before = open && open.cells && open.cells.rows === cells.rows && open.cells.cols === cells.cols ? open : null;
  open = { of, cells };
  content.replaceChildren(
    make('div', { class: 'plot' }, reading,
      make('div', { class: 'framed' }, labels(axes[1], cells.cols, 'top'), labels(axes[0], cells.rows, 'left'), board),
      make('p', { class: 'quiet' }, hint)),
    make('div', {}, heading, strongest, keys,
      ...(queries.length === 0 ? [] : [make('h3', {}, 'Queries'), queries]), ...findings(of), ...statistics(of)));
  select(before ? before.row : cells.rows - 1, before ? before.col : 0);
  return board;
}

/** Opens the head of an anchor, if it is one. */
async function openHead(id) {
  tip.hidden = true;
  const of = heads.get(id);
  if (!of) {
    showSeries(id);
    if (!dialog.open) dialog.showModal();
    return;
  }
  of.section.closest('.prompt').open = true;
  const board = await show(of);
  if (!dialog.open) dialog.showModal();
  if (board) board.focus();
}

/** Writes the address of a head, where the browser lets it: a page in a frame of a notebook has none. */
function address(hash, replaces) {
  const to = hash === '' ? location.pathname + location.search : hash;
  try {
    if (replaces) history.replaceState(null, '', to);
    else history.pushState(null, '', to);
  } catch {
    // The page works without an address.
  }
}

function go(id, replaces = false) {
  address(`#${id}`, replaces);
  openHead(id);
}

document.addEventListener('click', (event) => {
  const link = event.target instanceof Element && event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !isHead(anchorOf(link))) return;
  event.preventDefault();
  go(anchorOf(link));
});
function follow() {
  const id = location.hash.slice(1);
  if (isHead(id)) openHead(id);
  else if (dialog.open) dialog.close();
}
addEventListener('popstate', follow);
addEventListener('hashchange', follow);
dialog.addEventListener('close', () => {
  open = null;
  content.replaceChildren();
  if (isHead(location.hash.slice(1))) address('', true);
});
dialog.addEventListener('click', (event) => {
  // Beside the dialog.
  if (event.target === dialog) dialog.close();
});
dialog.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'n') step(1);
  if (event.key === 'p') step(-1);
});
follow();
