"""The ranks of a job as JSON."""

from gradscope.analysis.job_summary import JobSummary, RankRow
from gradscope.analysis.report import Report
from gradscope.report.json_objects import Object, location_object


def ranks_object(report: Report) -> Object | None:
    """Return the job and its ranks; None outside of a job."""
    job = report.job
    if job is None:
        return None
    return {
        "world_size": job.world_size,
        "backend": job.backend,
        "strategy": job.strategy or None,
        "recorded": [_row(row, report) for row in job.rows],
        "missing": list(job.missing),
        "global_norms": [
            {"step": one.step, "norm": one.norm, "partial": list(one.partial)} for one in job.norms
        ],
        "sharded_parameters": job.sharded,
        "is_joined": job.is_joinable,
        "first_failure": _failure(job, report),
    }


def _row(row: RankRow, report: Report) -> Object:
    return {
        "rank": row.rank,
        "local_rank": row.local_rank,
        "host": row.host,
        "state": row.state,
        "ended": row.what,
        "location": location_object(row.site, report),
        "steps": row.steps,
        "backward_passes": row.passes,
        "loss": row.loss,
    }


def _failure(job: JobSummary, report: Report) -> Object | None:
    if job.failure is None:
        return None
    return {
        "rank": job.failure.rank,
        "what": job.failure.what,
        "location": location_object(job.failure.site, report),
    }
