"""Random schedules of faults in virtual time: the product's nodes and live driver over a broker
with unconfirmed sends, partitions, zombies and skewed clocks."""
