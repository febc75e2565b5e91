//! Reads whole files of bounded length.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use acidtest_model::figure::bytes;

/// The text of a file; an error if it has more than `longest` bytes.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<String> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut text = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut text)?;
    if text.len() as u64 > longest {
        return Err(wrong(format!("it is longer than {}", bytes(longest as f64))));
    }
    String::from_utf8(text).map_err(|_| wrong("it is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_too_long_or_no_text_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let read = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            read(&path, 1024).map_err(|error| error.to_string())
        };
        assert_eq!(read("é".repeat(512).as_bytes()), Ok("é".repeat(512)));
        assert_eq!(read(&[b'x'; 1025]), Err("it is longer than 1.00 KiB".to_owned()));
        assert_eq!(read(b"\xff"), Err("it is not text".to_owned()));
    }
}
