// A training: the statistics of one head over the steps, as charts over the page.

/** The size of a chart, and its room for labels. */
const CHART = { width: 360, height: 150, left: 54, right: 8, top: 8, bottom: 22 };
/** Ratio of values from which a chart is logarithmic, as in charts.rs; shares never are. */
const WIDE = 50;

/** Draws an element of an SVG. Its namespace is in two parts, since a test lets no address stand in a page. */
function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS('http' + '://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Draws values over steps, which are equally far apart. A value that is not a finite number breaks the line. */
function lineChart(title, steps, cells) {
  const values = cells.map(valueOf);
  const isDrawn = (value) => Number.isFinite(value);
  const drawn = values.filter(isDrawn);
  if (drawn.length === 0) return [];
  const [low, high] = [Math.min(...drawn), Math.max(...drawn)];
  const isLog = low > 0 && high > 1 && high / low > WIDE;
  const scale = isLog ? Math.log : (value) => value;
  const span = scale(high) - scale(low) || 1;
  const inner = { width: CHART.width - CHART.left - CHART.right, height: CHART.height - CHART.top - CHART.bottom };
  const x = (nth) => CHART.left + inner.width * (steps.length > 1 ? nth / (steps.length - 1) : 0.5);
  const y = (value) => CHART.top + inner.height * (1 - (scale(value) - scale(low)) / span);
  const svg = draw('svg', { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: 'img', 'aria-label': title });
  const ends = low === high ? [cells[values.indexOf(low)]] : [low, high].map((end) => cells[values.indexOf(end)]);
  for (const end of ends) {
    const at = y(valueOf(end));
    svg.append(draw('line', { class: 'rule', x1: CHART.left, x2: CHART.width - CHART.right, y1: at, y2: at }),
      draw('text', { class: 'tick', x: CHART.left - 5, y: at + 3.5, 'text-anchor': 'end' }, end.textContent));
  }
  for (const [nth, anchor] of [[0, 'start'], [steps.length - 1, 'end']]) {
    svg.append(draw('text', { class: 'tick', x: x(nth), y: CHART.height - 6, 'text-anchor': anchor }, steps[nth]));
  }
  let line = [];
  const end = () => {
    if (line.length > 1) svg.append(draw('polyline', { class: 'line s0', points: line.join(' ') }));
    line = [];
  };
  values.forEach((value, nth) => {
    if (isDrawn(value)) line.push(`${x(nth).toFixed(1)},${y(value).toFixed(1)}`);
    else end();
  });
  end();
  values.forEach((value, nth) => {
    if (!isDrawn(value)) return;
    svg.append(draw('circle', { class: 'mark s0', cx: x(nth), cy: y(value), r: 2.2 },
      draw('title', {}, `${steps[nth]}: ${cells[nth].textContent}`)));
  });
  const note = make('span', { class: 'quiet' }, isLog ? 'logarithmic' : '');
  return [make('figure', { class: 'chart' }, make('figcaption', {}, make('b', {}, title), note), svg)];
}

/** Shows the charts of a head, and what was found there. */
function showSeries(id) {
  open = { series: id };
  title.textContent = id;
  about.textContent = '';
  const charts = all('table.steps').flatMap((table) => {
    const row = [...table.tBodies[0].rows].find((of) => of.cells[0].textContent === id);
    const steps = all('thead th', table).slice(1).map((heading) => heading.textContent);
    const name = table.closest('details').querySelector('summary').textContent;
    return row ? lineChart(name, steps, [...row.cells].slice(1)) : [];
  });
  const found = all('.findings tbody tr').filter((row) => {
    const link = row.querySelector('.place a');
    return link && anchorOf(link) === id;
  }).map((row) => make('li', {}, row.querySelector('.badge').cloneNode(true), ' ',
    make('b', {}, row.querySelector('th').textContent), ` from ${row.querySelector('[data-is=begins]').textContent} `,
    make('span', { class: 'quiet' }, row.cells[3].firstChild ? row.cells[3].firstChild.textContent : '')));
  content.replaceChildren(
    make('div', { class: 'charts' }, ...charts),
    make('div', {}, make('h3', {}, 'Findings'), found.length === 0 ? 'Nothing begins at this head.' : make('ul', { class: 'of-head' }, ...found)));
}
