"""The OCR stage: text inside pictures, for a mail that the scan called clean. Everything happens in memory.

    engine    the tesseract program, fed through a pipe
    prepare   any picture to the greyscale PNG tesseract reads best, with hard limits
    text      the recognised text, which can't be printed, logged or pickled by accident
    mail      all pictures of one mail

The recognised text is personal data of people who never wrote to us: it is never stored, and no temporary file is made.
"""
