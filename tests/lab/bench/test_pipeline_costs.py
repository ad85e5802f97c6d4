from __future__ import annotations

import os
import subprocess
import sys

from kafkaesque.lab.bench.pipeline_costs import CpuMeter, Reading, Spent

_BUSY = "import sys, time; t = time.process_time\nwhile t() < 0.1: pass\nprint(flush=True); sys.stdin.read()"


def busy_process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if process.stdout is not None:
        process.stdout.readline()
    return process


def test_cpu_of_a_child_counts_as_python_and_that_of_the_broker_separately() -> None:
    before = CpuMeter(broker_pid=-1).read()
    with busy_process() as child:
        as_child = CpuMeter(broker_pid=-1).read() - before
        as_broker = CpuMeter(broker_pid=child.pid).read() - before
        child.communicate()
    # The kernel counts CPU time in hundredths of a second.
    assert as_child.python_s > 0.05
    assert as_child.broker_s == 0
    assert as_broker.broker_s > 0.05
    assert as_broker.python_s < as_child.python_s


def test_process_that_ended_counts_as_zero_not_as_negative() -> None:
    with busy_process() as child:
        before = CpuMeter(broker_pid=-1).read()
        child.communicate()
    assert child.pid in before.python
    assert (CpuMeter(broker_pid=-1).read() - before).python_s >= 0


def test_cost_is_reported_with_and_without_the_compiler() -> None:
    spent = Spent(jvm_s=3.0, compiler_s=1.0, python_s=1.0, broker_s=0.5)
    figures = spent.per_million(2_000_000)
    assert figures["cpu_s_per_million"] == 2.25
    assert figures["settled_cpu_s_per_million"] == 1.75
    assert figures["jvm_cpu_s_per_million"] == 1.5


def test_compiler_threads_are_part_of_their_jvm() -> None:
    earlier = Reading({7: 1.0}, {71: 0.5}, {os.getpid(): 1.0}, {})
    later = Reading({7: 4.0}, {71: 1.0, 72: 0.25}, {os.getpid(): 1.5}, {9: 0.25})
    assert later - earlier == Spent(3.0, 0.75, 0.5, 0.25)


def test_process_that_ends_during_a_reading_does_not_affect_the_others() -> None:
    earlier = Reading({}, {}, {1: 2.0, 2: 1.0}, {})
    later = Reading({}, {}, {1: 0.0, 2: 1.5}, {})
    assert (later - earlier).python_s == 0.5
