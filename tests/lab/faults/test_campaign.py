from __future__ import annotations

from kafkaesque.lab.faults.campaign import Campaign, RunExecution
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import History, Terms
from kafkaesque.lab.faults.report import FaultReport

EMPTY = FaultReport(name="calm", verdict=check_history(History(Terms(), [])))


def test_a_campaign_without_executions_has_passed_with_zeros() -> None:
    summary = Campaign().summary("all")
    assert summary["passed"]
    assert summary["lost"] == summary["longest_gap_ms"] == 0


def test_an_impossible_run_is_listed_and_an_unfinished_one_fails_the_campaign() -> None:
    campaign = Campaign()
    campaign.executions += [
        RunExecution("calm", 1, EMPTY),
        RunExecution("power-cut", 1, trouble="no loop device", is_impossible=True),
    ]
    assert campaign.passed == EMPTY.passed
    assert campaign.impossible == ["no loop device"]
    campaign.executions.append(RunExecution("kill-leader", 1, trouble="it hung"))
    assert not campaign.passed
    assert [one.verdict for one in campaign.executions[1:]] == ["not possible here", "NOT FINISHED"]
    assert campaign.summary("all")["unfinished"] == ["it hung"]
