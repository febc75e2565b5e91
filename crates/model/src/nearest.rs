//! Suggestions for mistyped words.

/// Longest word, in bytes, that is compared: a longer one is no mistyped name.
const LONGEST: usize = 100;

/// The known word nearest to a mistyped one; `None` if none is near enough to be a likely typing error.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // the time and memory of a comparison grow with the product of both lengths
    if word.len() > LONGEST {
        return None;
    }
    let distance = |each: &str| strsim::damerau_levenshtein(&word.to_lowercase(), each);
    let length = word.chars().count();
    let near = (length / 3).max(2);
    // words that have nothing in common are as far apart as the longer one is long
    let is_near =
        |each: &&str| distance(each) <= near.min(length.max(each.chars().count()).saturating_sub(1));
    known.into_iter().min_by_key(|each| distance(each)).filter(is_near)
}

/// The text `; did you mean "…"?` with the nearest known word, or an empty text.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_meant() {
        let known = ["sqlite", "postgres", "mariadb", "redis", "tarantool"];
        assert_eq!(nearest("postgers", known), Some("postgres"));
        assert_eq!(nearest("Redis", known), Some("redis"));
        assert_eq!(nearest("oracle", known), None);
        assert_eq!(nearest("z", ["a", "b"]), None);
        assert_eq!(nearest(&"x".repeat(1 << 26), known), None);
    }
}
