"""The record-batch layout shared by the wire and the disk. No I/O, no clock."""
