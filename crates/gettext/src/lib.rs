//! GNU gettext catalogues: PO files, plural rules, named placeholders, fallback.
