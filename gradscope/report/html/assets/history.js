// The gradient of the selected layer over the steps, as lines among the curves of a run.

const MOST_LINES = 6;

// The rows of the heatmap that lie in what is selected: names, steps and norms.
function selectedRows(tab) {
  const heat = tab.content('heatmap')?.figure.data.find((trace) => trace.meta?.isLogarithm && trace.name === 'gradient norm');
  if (!heat) return [];
  const { rows, steps } = heat.meta;
  const { parameter } = tab.selection;
  const isOfParameters = rows.parameter.some((one) => one !== null);
  return heat.y
    .map((name, row) => ({ name, row }))
    .filter(({ row }) => (parameter !== null && isOfParameters
      ? rows.parameter[row] === parameter : tab.isInside(rows.module[row])))
    .map(({ name, row }) => ({
      name, steps, norms: heat.z[row].map((value) => (value === null ? null : 10 ** value)),
    }));
}

// Lines in the panel of gradient norms; of a figure without one, or not over steps, none.
function historyTraces(figure, tab) {
  const beside = figure.data.find((trace) => trace.meta?.curve === 'norm');
  if (!beside || !figure.layout.meta?.stepAxes?.length) return [];
  return selectedRows(tab).slice(0, MOST_LINES).map(({ name, steps, norms }, index) => ({
    type: 'scatter', mode: 'lines+markers', name, x: steps, y: norms,
    xaxis: beside.xaxis, yaxis: beside.yaxis, showlegend: true, connectgaps: true,
    line: { color: colour(index ? `series-${(index + 1) % 8}` : 'select'), width: 1.5, dash: 'dot' },
    marker: { size: 4 }, hovertemplate: '%{y:exact}<extra>%{fullData.name}</extra>',
  }));
}
