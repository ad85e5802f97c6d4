"""The whole platform on one machine: what `kafkaesque up` and `kafkaesque cluster` run.

`plan` and `brokers` list the processes, `supervisor` keeps them running, `platform` starts them in
order, `control_server` lets the console and `kafkaesque ctl` kill, pause and restart them. The
commands themselves parse options and print.
"""
