-- How often bytes brought the scanner to an error is asked for each mail.
create index scans_failed on atlas.scans (sha256) where verdict = 'error';
