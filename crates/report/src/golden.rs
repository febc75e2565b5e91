//! What results look like, kept in files.

/// Compares a text with the file of the same name in `tests/golden`; with `GOLDEN=write` set, writes the file.
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "{name} changed; if it should, run the tests again with GOLDEN=write");
}
