"""The command line: parsing, printing and exit codes. It may import anything; nothing imports it.

`main` loads commands lazily, one module for each command or group of commands. Operations on a cluster are
in `kafkaesque.admin` and raise AdminError, which `failures` turns into messages and exit codes. All output
goes through `render`.
"""
