"""The HTML report: one file that opens offline, and runs under a strict content policy.

A page holds one tab for each subject (a target, a run, a comparison). A tab holds texts, which the
template writes and which do not need JavaScript, and charts. Python decides what a chart shows and
how it is encoded; JavaScript draws it and links it to the others.

**Charts** (`page.Chart`) have a kind, which names the painter in `assets/` that draws them:

- `plot`: `{"figure": {"data": […], "layout": {…}}}`, drawn by plotly. Colours are names of CSS
  variables, as `@accent`, `@error`, `@ink-soft`, so that light and dark are one figure; the painter
  adds fonts, grids and background. What a mark stands for is told by its trace:
  `meta.links` maps `module`, `parameter`, `tensor` or `step` to a column with an entry a point,
  null where it stands for none; of a heatmap `meta.rows` likewise maps to a column by row, and
  `meta.steps` is a column by column; `meta.columns` are the texts that hovers tell of its columns
  as `%{text}`, and where `meta.isLogarithm` is true, they tell ten to the power of each number as
  `%{customdata}`. In `hovertemplate`, numbers have the page's formats, as `%{y:exact}` (`figure`,
  `exact`, `count`, `cosine`, `share`). `meta.under` true: a click selects, but nothing is marked.
  `meta.told` says what is told of a mark under the mouse: the name of a table of the tab, whose
  rows the last of `meta.links` names, or columns as a table has them with an entry a mark.
  Beside `figure`, `switches` are rows of buttons, each `{"label": …, "choices": [{"label": …,
  "data": [patch, …], "layout": patch}, …]}`: a choice lays its patches over the figure, trace by
  trace (null leaves one as it is); the first is chosen at the start. `finer` has, by
  `meta.quantity` of a heatmap, more columns than it shows at first; see `charts.heat_levels`.
- `graph`: drawings of modules, by `assets/graph.js`; see `graph.drawing_columns`. `start` is the
  module that is open at first.
- `table`: columns of rows, by `assets/table.js`; see `tables`. A column has `values`, or says by
  `of` which of the tab's columns of modules it shows, for the modules that the rows link to.
- `timeline`: what led to each step of a run, by `assets/timeline.js`; see `charts.timeline`.
- `two-steps`: norms of the heatmap at two steps, by `assets/two_steps.js`.

A painter is registered as `painter(kind, paint)`; `paint(canvas, content, tab)` draws into the
element `canvas`, with what is selected, and returns an object with `show(selection)`, called after
each change of that, and may return `theme()`, called when light and dark change or the page is
printed.
Plotly's text stands inert at the end of the page and runs after the first frame: until then,
`assets/sketch.js` draws the lines and marks of the charts in view.
`tab.modules` has the columns of `columns.module_columns`, decoded; `tab.select({module: 3})`
changes the selection `{module, parameter, tensor, step, base}` (numbers or null; `base` is the step
that `step` is compared with) and tells every chart; `tab.isInside(module)` says whether a module
lies in the selected one. A chart is painted when it comes into view for the first time.

**Columns** of many values are encoded by `columns`; wherever such an object stands in a tab's
JSON, painters find a plain array, with null for None, and NaN and infinities as they are.
"""
