"""The applications of the ELF paper, each a job in Python that you can send as it is, or take as a beginning.

| file | the paper | how it works |
|---|---|---|
| ``micro_promotion`` | Figure 1, Figure 7 | batches in step; a discount back to those that have the product |
| ``product_bundling`` | Figure 1, section 2.3 | a cycle over a sliding window: connected components |
| ``sale_prediction`` | Figure 1, section 2.4 | its master asks the masters of the other two |
| ``spam_campaign`` | section 4.1, Figure 10b | the same batches; its function is changed while it runs |

``page_ranks`` is after another paper: a graph whose vertices lie on several agents. ``correlation`` is an
aggregate.

``elf demo --app NAME`` runs one on this machine and checks it against the logs. What stands at the top of
each class may be changed as it is sent: ``elf submit FILE --set every=5``.
"""
