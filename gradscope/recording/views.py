"""Views of a recording for people in the sqlite3 shell; gradscope itself reads the tables."""

from gradscope.recording.step_norms import number_in_sql

VIEWS = (
    f"""CREATE VIEW step_bucket AS
        WITH RECURSIVE places(place) AS (
            SELECT 0 UNION ALL SELECT place + 1 FROM places WHERE place < 9
        )
        SELECT step_summary.first + place * bucket AS first, bucket AS steps, kind, optimizer,
            {number_in_sql("counts")} AS finite, {number_in_sql("broken")} AS broken,
            {number_in_sql("lowest")} AS lowest, {number_in_sql("highest")} AS highest,
            {number_in_sql("mean")} AS mean, {number_in_sql("last")} AS last
        FROM series_summary JOIN step_summary ON step_summary.first = series_summary.first
        JOIN places ON 8 * place < length(counts)
        ORDER BY kind, optimizer, 1""",
    """CREATE VIEW parameter_gradient AS
       SELECT step, parameter.name, reach, norm, absolute_maximum, weight_norm, update_norm, reason
       FROM parameter_stat JOIN parameter ON parameter.id = parameter_stat.parameter
       UNION ALL
       SELECT step, name, reach, norm, NULL, weight_norm, update_norm,
           CASE WHEN norm IS NULL THEN 'it had no gradient' END
       FROM step_gradient""",
    """CREATE VIEW tensor_gradient AS
       SELECT step, module.path AS module, operation, file, line, norm, absolute_maximum, reason
       FROM tensor_stat JOIN node ON node.id = tensor_stat.node
       LEFT JOIN module_call ON module_call.id = node.module_call
       LEFT JOIN module ON module.id = module_call.module
       LEFT JOIN site ON site.id = node.site""",
)
"""Statements that create them."""
