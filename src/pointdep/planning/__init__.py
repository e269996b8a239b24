"""What a fit, a score, an audit or a search will cost: counted work times measured constants.

Plain Python: nothing here imports torch or numpy.
"""
