"""The OCR stage: text inside pictures, for a mail that the scan called clean. Everything happens in memory.

    mail      all pictures and PDFs of one mail, some at once, within its time
    reader    one of them, read in a process of its own with little memory and time
    worker    that process
    prepare   any picture to the grey one tesseract reads best, with hard limits
    pdf       a PDF's pages: their text, or their pictures
    engine    the tesseract program, fed through a pipe
    text      the recognised text, which can't be printed, logged or pickled by accident

The recognised text is personal data of people who never wrote to us: it is never stored, and no temporary file is made.
"""
