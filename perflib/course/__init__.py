"""Teaches with measurements: predictions, exercises that check themselves, cases, code to mend.

A notebook's lesson is declared in ``lessons``; what a student does with it is
`perflib.course.worksheet`.
"""
