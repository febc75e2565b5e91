//! The body of a request: entries as JSON or NDJSON, each of which is taken or refused with the field at fault.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    APPLICATION, ATTRIBUTES, ENTRIES, Entry, ID, KEYS, Level, MESSAGE,
    id::{Made, Said},
};

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One entry, or an array of entries.
    Json,
    /// An entry on each line.
    Lines,
}

#[derive(Debug)]
pub(crate) struct Body<'a> {
    /// Good entries, each with its place in the body.
    pub(crate) entries: Vec<(usize, Entry<'a>)>,
    pub(crate) refused: Vec<Refusal>,
    /// How many entries there are, good or not.
    pub(crate) count: usize,
    /// The places of entries whose ids were made here.
    pub(crate) made: Vec<usize>,
    ids: Made,
}

/// An entry that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its place in the body, from 0.
    pub(crate) place: usize,
    /// The field at fault; none if it is not an entry at all.
    pub(crate) field: Option<&'static str>,
    pub(crate) reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: ", self.place)?;
        if let Some(field) = self.field {
            write!(f, "{field} ")?;
        }
        f.write_str(&self.reason)
    }
}

/// A body of which nothing can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) String);

/// Reads a body. Of an array nothing is taken unless all of it is JSON, because nobody knows where the next entry
/// begins; of lines, each stands for itself. An entry of an array that is JSON by its grammar and has no meaning, such as
/// half of a surrogate pair, costs itself alone, too.
pub(crate) fn read(body: &[u8], form: Form, ids: impl Fn() -> Made) -> Result<Body<'_>, Unreadable> {
    let mut read = Body::new(ids());
    match form {
        Form::Json => read_json(body, &mut read, ids)?,
        Form::Lines => read_lines(body, &mut read)?,
    }
    if read.count == 0 {
        return Err(Unreadable("there is no entry in the body".to_owned()));
    }
    Ok(read)
}

fn read_json<'a>(body: &'a [u8], read: &mut Body<'a>, ids: impl Fn() -> Made) -> Result<(), Unreadable> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let done = if first == Some(&b'[') {
        json.deserialize_seq(Entries(read))
    } else {
        Loose::deserialize(&mut json).map(|entry| read.note(entry))
    };
    let whole = done.and_then(|()| json.end());
    let Err(error) = whole else { return Ok(()) };
    if read.count > ENTRIES {
        return Err(Unreadable(too_many()));
    }
    let Ok(raw) = serde_json::from_slice::<Vec<&'a RawValue>>(body) else {
        return Err(Unreadable(not_json(&error)));
    };
    if raw.len() > ENTRIES {
        return Err(Unreadable(too_many()));
    }
    *read = Body::new(ids());
    for entry in raw {
        read.note_text(entry.get().as_bytes(), "the entry");
    }
    Ok(())
}

fn not_json(error: &serde_json::Error) -> String {
    format!("the body is not JSON: {error}")
}

fn too_many() -> String {
    format!("the body has more than {ENTRIES} entries: send them in several requests")
}

fn read_lines<'a>(body: &'a [u8], read: &mut Body<'a>) -> Result<(), Unreadable> {
    let ends = memchr::memchr_iter(b'\n', body).chain([body.len()]);
    let mut begin = 0;
    for end in ends {
        // the last line may have no end, and then there is no line behind it
        let line = body.get(begin..end).unwrap_or_default();
        begin = end + 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if read.count == ENTRIES {
            return Err(Unreadable(too_many()));
        }
        read.note_text(line, "the line");
    }
    Ok(())
}

impl<'a> Body<'a> {
    fn new(ids: Made) -> Self {
        Self { entries: Vec::new(), refused: Vec::new(), count: 0, made: Vec::new(), ids }
    }

    /// Whether the id of the entry at this place was made here.
    pub(crate) fn is_made(&self, place: usize) -> bool {
        self.made.binary_search(&place).is_ok()
    }

    /// Whether nobody else can have an entry with the id of the one at this place.
    pub(crate) fn is_new(&self, place: usize) -> bool {
        !self.ids.repeats() && self.is_made(place)
    }

    fn note_text(&mut self, text: &'a [u8], what: &str) {
        match serde_json::from_slice::<Loose<'a>>(text) {
            Ok(entry) => self.note(entry),
            Err(error) => self.refuse(None, format!("{what} is not JSON: {error}")),
        }
    }

    fn note(&mut self, loose: Loose<'a>) {
        match loose.checked(self.count, &mut self.ids) {
            Ok((entry, made)) => {
                if made {
                    self.made.push(self.count);
                }
                self.entries.push((self.count, entry));
                self.count += 1;
            }
            Err((field, reason)) => self.refuse(field, reason),
        }
    }

    fn refuse(&mut self, field: Option<&'static str>, reason: String) {
        self.refused.push(Refusal { place: self.count, field, reason });
        self.count += 1;
    }
}

/// The entries of an array, read one after the other into the body.
struct Entries<'b, 'a>(&'b mut Body<'a>);

impl<'de> Visitor<'de> for Entries<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Loose<'de>>()? {
            self.0.note(entry);
            if self.0.count > ENTRIES {
                return Err(de::Error::custom("too many entries"));
            }
        }
        Ok(())
    }
}

/// What stands where an entry is expected, unchecked: whatever is wrong with it is told by field.
#[derive(Default)]
struct Loose<'a> {
    is_object: bool,
    id: Field<'a>,
    timestamp: Field<'a>,
    level: Field<'a>,
    application: Field<'a>,
    message: Field<'a>,
    attributes: Option<&'a RawValue>,
    /// A field that entries do not have.
    unknown: Option<String>,
    /// A field that is there twice.
    twice: Option<&'static str>,
}

#[derive(Default)]
enum Field<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    /// Something else, in a word.
    Other(&'static str),
}

const NAMES: [&str; 6] = ["id", "timestamp", "level", "application", "message", "attributes"];

type Fault = (Option<&'static str>, String);

impl<'a> Loose<'a> {
    /// The entry, and whether its id was made here.
    fn checked(self, place: usize, ids: &mut Made) -> Result<(Entry<'a>, bool), Fault> {
        if !self.is_object {
            return Err((None, "an entry is a JSON object".to_owned()));
        }
        if let Some(name) = self.unknown {
            let hint = acidtest_model::hint(&name, NAMES);
            return Err((None, format!("there is no field \"{}\"{hint}", shown(&name))));
        }
        if let Some(name) = self.twice {
            return Err((Some(name), "is there twice".to_owned()));
        }
        let written = text("timestamp", self.timestamp)?;
        let timestamp = moment(&written).map_err(|reason| (Some("timestamp"), reason))?;
        let level = text("level", self.level)?;
        let level = Level::named(&level).ok_or_else(|| {
            let names: Vec<&str> = Level::ALL.into_iter().map(Level::name).collect();
            (Some("level"), format!("\"{}\" is not one of {}", shown(&level), names.join(", ")))
        })?;
        let application = bounded("application", text("application", self.application)?, APPLICATION)?;
        if application.trim().is_empty() {
            return Err((Some("application"), "is empty".to_owned()));
        }
        let message = bounded("message", text("message", self.message)?, MESSAGE)?;
        let attributes = self.attributes.map(attributes).transpose()?.flatten();
        let (id, made) = match self.id {
            Field::Absent => {
                let said = Said {
                    moment: timestamp,
                    timestamp: &written,
                    level: level.name(),
                    application: &application,
                    message: &message,
                    attributes,
                };
                (Cow::Owned(ids.next(place, said)), true)
            }
            given => (good_id(text("id", given)?)?, false),
        };
        Ok((Entry { id, timestamp, level, application, message, attributes }, made))
    }
}

fn text<'a>(name: &'static str, field: Field<'a>) -> Result<Cow<'a, str>, Fault> {
    match field {
        Field::Text(text) => Ok(text),
        Field::Absent => Err((Some(name), "is missing".to_owned())),
        Field::Other(what) => Err((Some(name), format!("must be a string, not {what}"))),
    }
}

fn bounded<'a>(name: &'static str, text: Cow<'a, str>, most: usize) -> Result<Cow<'a, str>, Fault> {
    if text.len() > most {
        return Err((Some(name), format!("has {} bytes, at most {most} are taken", text.len())));
    }
    // PostgreSQL's text cannot hold it
    if memchr::memchr(0, text.as_bytes()).is_some() {
        return Err((Some(name), "holds a NUL character, which not every database can store".to_owned()));
    }
    Ok(text)
}

fn good_id(id: Cow<'_, str>) -> Result<Cow<'_, str>, Fault> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if id.is_empty() || id.len() > ID || !id.bytes().all(is_good) {
        return Err((Some("id"), format!("must be 1 to {ID} letters, digits or ._:-")));
    }
    Ok(id)
}

/// A moment as RFC 3339 with its offset from UTC, in the years 1970 to 9998: what every database can store.
/// Digits beyond microseconds are cut off, and a leap second counts as the second before it.
fn moment(text: &str) -> Result<i64, String> {
    // 9999-01-01T00:00:00Z
    const END: i128 = 253_370_764_800_000_000_000;
    let text = &*without_fine_digits(text);
    let parsed = is_rfc3339(text).then(|| text.parse::<jiff::Timestamp>());
    let Some(Ok(moment)) = parsed else {
        let out_of_range = text.starts_with("9999") && is_rfc3339(text);
        return Err(if out_of_range { out_of_years(text) } else { no_moment(text) });
    };
    if !(0..END).contains(&moment.as_nanosecond()) {
        return Err(out_of_years(text));
    }
    Ok(moment.as_microsecond())
}

fn no_moment(text: &str) -> String {
    format!("\"{}\" is not a time by RFC 3339, such as 2026-11-23T10:15:00.123Z", shown(text))
}

fn out_of_years(text: &str) -> String {
    format!("\"{}\" is not in the years 1970 to 9998", shown(text))
}

/// Whether a text has the form of RFC 3339: `2026-11-23T10:15:00`, a fraction or none, and `Z` or an offset.
fn is_rfc3339(text: &str) -> bool {
    let fits = |text: &[u8], form: &[u8]| {
        text.len() == form.len()
            && text.iter().zip(form).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte.eq_ignore_ascii_case(form),
            })
    };
    let Some((moment, mut rest)) = text.as_bytes().split_at_checked(19) else { return false };
    if let [b'.', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        rest = fraction.get(digits..).unwrap_or_default();
    }
    fits(moment, b"0000-00-00T00:00:00")
        && (fits(rest, b"Z") || fits(rest, b"+00:00") || fits(rest, b"-00:00"))
}

/// The text of a moment with at most nine digits of a fraction, which is what is read.
fn without_fine_digits(text: &str) -> Cow<'_, str> {
    let rest = text.get(20..).filter(|_| text.as_bytes().get(19) == Some(&b'.')).unwrap_or_default();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match (text.get(..29), text.get(20 + digits..)) {
        (Some(kept), Some(offset)) if digits > 9 => Cow::Owned(format!("{kept}{offset}")),
        _ => Cow::Borrowed(text),
    }
}

fn attributes(raw: &RawValue) -> Result<Option<&str>, Fault> {
    let wrong = |reason: String| (Some("attributes"), reason);
    let text = raw.get();
    if text == "null" {
        return Ok(None);
    }
    if text.len() > ATTRIBUTES {
        return Err(wrong(format!("have {} bytes, at most {ATTRIBUTES} are taken", text.len())));
    }
    match serde_json::from_str::<Attributes>(text) {
        Ok(Attributes) => Ok(Some(text)),
        // the position is in the attributes, not in the body
        Err(error) => {
            let words = error.to_string();
            Err(wrong(words.split(" at line ").next().unwrap_or_default().to_owned()))
        }
    }
}

/// An object of at most so many values, none of which is an object or an array.
struct Attributes;

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Attributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
                let mut keys: Vec<Cow<'de, str>> = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    let value: Field<'de> = map.next_value()?;
                    if keys.len() == KEYS {
                        return Err(de::Error::custom(format!("have more than {KEYS} values")));
                    }
                    if keys.contains(&key) {
                        return Err(de::Error::custom(format!("have \"{}\" twice", shown(&key))));
                    }
                    let has_nul = |text: &str| memchr::memchr(0, text.as_bytes()).is_some();
                    match &value {
                        Field::Other(what @ ("an object" | "an array")) => {
                            let key = shown(&key);
                            return Err(de::Error::custom(format!(
                                "\"{key}\" is {what}; a value is a string, a number, true, false or null"
                            )));
                        }
                        Field::Text(text) if has_nul(text) => {
                            return Err(de::Error::custom(
                                "hold a NUL character, which not every database can store",
                            ));
                        }
                        _ => {}
                    }
                    if has_nul(&key) {
                        return Err(de::Error::custom(
                            "hold a NUL character, which not every database can store",
                        ));
                    }
                    keys.push(key);
                }
                Ok(Attributes)
            }
        }
        json.deserialize_map(Flat)
    }
}

/// The beginning of a text that somebody sent, fit for an answer.
fn shown(text: &str) -> String {
    text.chars().take(60).map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// A key of an object, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match Field::deserialize(json)? {
            Field::Text(text) => Ok(Self(text)),
            _ => Err(de::Error::custom("a key must be a string")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Field<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Field<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
                Ok(Field::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
                Ok(Field::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
                Ok(Field::Other("a boolean"))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Field<'de>, E> {
                Ok(Field::Other("a number"))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Field<'de>, E> {
                Ok(Field::Other("a number"))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Field<'de>, E> {
                Ok(Field::Other("a number"))
            }
            fn visit_unit<E>(self) -> Result<Field<'de>, E> {
                Ok(Field::Other("null"))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Field::Other("an object"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Field<'de>, A::Error> {
                while values.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Field::Other("an array"))
            }
        }
        json.deserialize_any(Any)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Loose<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose<'de>, A::Error> {
                let mut entry = Loose { is_object: true, ..Loose::default() };
                while let Some(Key(key)) = map.next_key()? {
                    let (name, field) = match &*key {
                        "id" => ("id", &mut entry.id),
                        "timestamp" => ("timestamp", &mut entry.timestamp),
                        "level" => ("level", &mut entry.level),
                        "application" => ("application", &mut entry.application),
                        "message" => ("message", &mut entry.message),
                        "attributes" => {
                            if entry.attributes.replace(map.next_value()?).is_some() {
                                entry.twice = Some("attributes");
                            }
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            entry.unknown = Some(key.into_owned());
                            continue;
                        }
                    };
                    if !matches!(field, Field::Absent) {
                        entry.twice = Some(name);
                    }
                    *field = map.next_value()?;
                }
                Ok(entry)
            }
            fn visit_str<E>(self, _: &str) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
                Ok(Loose::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Loose<'de>, A::Error> {
                while values.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose::default())
            }
        }
        json.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"id":"a-1","timestamp":"2026-11-23T10:15:00.123456789+01:00","level":"Warn","application":"shop","message":"low"}"#;

    fn read(body: &[u8], form: Form) -> Result<Body<'_>, Unreadable> {
        super::read(body, form, || Made::Random)
    }

    fn refused(body: &str, form: Form) -> Vec<(usize, Option<&'static str>, String)> {
        let read = read(body.as_bytes(), form).unwrap();
        read.refused.into_iter().map(|refusal| (refusal.place, refusal.field, refusal.reason)).collect()
    }

    #[test]
    fn an_entry_is_read_with_all_that_it_says() {
        let body = GOOD.replace('}', r#","attributes":{"n":1.50,"ok":true,"who":null,"a\"b":"\u00e4"}}"#);
        let read = read(body.as_bytes(), Form::Json).unwrap();
        let (place, entry) = &read.entries[0];
        assert_eq!((*place, read.count, read.made.len()), (0, 1, 0));
        assert_eq!(
            (&*entry.id, entry.level, &*entry.application, &*entry.message),
            ("a-1", Level::Warn, "shop", "low")
        );
        assert_eq!(Moment(entry.timestamp).to_string(), "2026-11-23T09:15:00.123456Z");
        assert_eq!(entry.attributes, Some(r#"{"n":1.50,"ok":true,"who":null,"a\"b":"\u00e4"}"#));
    }

    use super::super::Moment;

    #[test]
    fn each_bad_field_is_named_and_the_others_are_taken() {
        let with = |from: &str, to: &str| GOOD.replace(from, to);
        let cases = [
            (with(r#""level":"Warn","#, ""), Some("level"), "is missing"),
            (
                with("Warn", "loud"),
                Some("level"),
                "\"loud\" is not one of trace, debug, info, warn, error, fatal",
            ),
            (with("\"Warn\"", "3"), Some("level"), "must be a string, not a number"),
            (with("\"low\"", "[\"low\"]"), Some("message"), "must be a string, not an array"),
            (with("\"low\"", "\"a\\u0000b\""), Some("message"), "holds a NUL"),
            (with("low", &"x".repeat(MESSAGE + 1)), Some("message"), "has 65537 bytes, at most 65536"),
            (with("shop", " "), Some("application"), "is empty"),
            (with("shop", &"x".repeat(APPLICATION + 1)), Some("application"), "has 129 bytes"),
            (with("a-1", "a 1"), Some("id"), "must be 1 to 64"),
            (with("a-1", ""), Some("id"), "must be 1 to 64"),
            (with("\"a-1\"", "null"), Some("id"), "must be a string, not null"),
            (with("2026", "yesterday"), Some("timestamp"), "is not a time"),
            (with("2026-11", "2026-13"), Some("timestamp"), "is not a time"),
            (with("+01:00", ""), Some("timestamp"), "is not a time"),
            (with("2026", "1969"), Some("timestamp"), "is not in the years"),
            (with("}", r#","level":"info"}"#), Some("level"), "is there twice"),
            (with("message", "mesage"), None, "there is no field \"mesage\"; did you mean \"message\"?"),
            (with("}", r#","attributes":{"a":{}}}"#), Some("attributes"), "\"a\" is an object"),
            (with("}", r#","attributes":{"a":1,"a":2}}"#), Some("attributes"), "have \"a\" twice"),
            (
                with("}", r#","attributes":[1]}"#),
                Some("attributes"),
                "invalid type: sequence, expected an object",
            ),
            (with("}", r#","attributes":{"a":"\u0000"}}"#), Some("attributes"), "hold a NUL"),
            ("7".to_owned(), None, "an entry is a JSON object"),
            ("[]".to_owned(), None, "an entry is a JSON object"),
        ];
        for (bad, field, reason) in cases {
            for (body, form) in [
                (format!("[{GOOD},{bad},{GOOD}]"), Form::Json),
                (format!("{GOOD}\n\n{bad}\r\n{GOOD}"), Form::Lines),
            ] {
                let all = read(body.as_bytes(), form).unwrap();
                assert_eq!(all.entries.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2], "{bad}");
                let [(1, at, said)] = &refused(&body, form)[..] else { panic!("{bad}: {:?}", all.refused) };
                assert!(*at == field && said.contains(reason), "{bad}: {at:?} {said}");
            }
        }
        let many: Vec<String> = (0..=KEYS).map(|key| format!("\"k{key}\":0")).collect();
        let body = GOOD.replace('}', &format!(",\"attributes\":{{{}}}}}", many.join(",")));
        assert!(refused(&body, Form::Json)[0].2.contains("more than 64"));
    }

    #[test]
    fn of_an_array_that_is_not_json_nothing_is_taken_and_of_lines_only_the_bad_one_is_not() {
        let broken = format!("[{GOOD},{{\"id\":,{GOOD}]");
        assert!(read(broken.as_bytes(), Form::Json).unwrap_err().0.contains("line 1 column"));
        assert!(read(format!("{GOOD}x").as_bytes(), Form::Json).is_err());
        assert!(read(b"", Form::Json).is_err());
        assert!(read(b"[]", Form::Json).unwrap_err().0.contains("no entry"));
        assert!(read(b"\n \n", Form::Lines).unwrap_err().0.contains("no entry"));
        assert!(read(b"\"\xff\"", Form::Json).is_err());
        let lines = format!("{GOOD}\n{{\"id\":\n{GOOD}\n\"\u{1}\"");
        assert_eq!(refused(&lines, Form::Lines).len(), 2);
        let many = format!("[{}]", vec!["1"; ENTRIES + 1].join(","));
        assert!(read(many.as_bytes(), Form::Json).unwrap_err().0.contains("more than 10000"));
        let many = vec!["1"; ENTRIES + 1].join("\n");
        assert!(read(many.as_bytes(), Form::Lines).unwrap_err().0.contains("more than 10000"));
    }

    #[test]
    fn an_entry_without_meaning_costs_no_other_of_its_array() {
        for bad in [r#"{"message":"cut \ud83d"}"#, r#"{"level":1e999}"#, r#"{"a":1,"\udfff":2}"#] {
            let body = format!("[{GOOD},{bad},{GOOD}]");
            let all = read(body.as_bytes(), Form::Json).unwrap();
            assert_eq!(all.entries.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2], "{bad}");
            let [(1, None, said)] = &refused(&body, Form::Json)[..] else {
                panic!("{bad}: {:?}", all.refused)
            };
            assert!(said.starts_with("the entry is not JSON: "), "{said}");
        }
    }

    #[test]
    fn a_moment_is_one_by_rfc_3339_in_the_years_that_every_database_stores() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t01:00:00.0000009+01:00", 0),
            ("1970-01-01T00:00:00.123456789123456789z", 123_456),
            ("1970-01-01T00:00:00.1234567891-00:30", 1_800_123_456),
            ("2016-12-31T23:59:60.5Z", 1_483_228_799_500_000),
            ("9998-12-31T23:59:59.999999Z", 253_370_764_799_999_999),
        ] {
            assert_eq!(moment(text), Ok(micros), "{text}");
        }
        for text in [
            "20261123T10Z",
            "2026-11-23 10:15:00Z",
            "2026-11-23T10:15Z",
            "2026-11-23T10:15:00,5Z",
            "2026-11-23T10:15:00.Z",
            "2026-11-23T10:15:00",
            "2026-11-23T10:15:00+0100",
            "2026-11-23T10:15:00+01:00[Europe/Berlin]",
            "2026-02-30T10:15:00Z",
            "2026-11-23T24:00:00Z",
            "2026-11-23T10:15:00.12345678901234567890",
            "2026-11-23T10:15:0\u{e4}Z",
            "",
        ] {
            assert!(moment(text).unwrap_err().contains("is not a time"), "{text}");
        }
        for text in ["1969-12-31T23:59:59.9999999Z", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            assert!(moment(text).unwrap_err().contains("the years 1970 to 9998"), "{text}");
        }
    }

    #[test]
    fn an_id_that_is_made_is_new_and_good() {
        let body = format!("[{0},{0}]", GOOD.replace(r#""id":"a-1","#, ""));
        let read = read(body.as_bytes(), Form::Json).unwrap();
        assert_eq!(read.made, [0, 1]);
        let ids: Vec<&str> = read.entries.iter().map(|(_, entry)| &*entry.id).collect();
        assert_ne!(ids[0], ids[1]);
        assert!(ids.into_iter().all(|id| good_id(Cow::Borrowed(id)).is_ok()));
        assert!(read.is_new(1), "nobody else has it");
    }

    /// Also where an array is read anew, because an entry of it has no meaning.
    #[test]
    fn ids_by_content_are_those_that_the_same_body_had() {
        let good = GOOD.replace(r#""id":"a-1","#, "");
        let ids = |body: &str, form| {
            let read = super::read(body.as_bytes(), form, || crate::Ids::Content.into()).unwrap();
            assert!(!read.is_new(0));
            let ids: Vec<String> = read.entries.iter().map(|(_, entry)| entry.id.to_string()).collect();
            ids
        };
        let lines = ids(&format!("{good}\n{good}"), Form::Lines);
        assert_ne!(lines[0], lines[1]);
        assert_eq!(ids(&format!("[{good},{good}]"), Form::Json), lines);
        assert_eq!(ids(&format!("[{good},{{\"level\":1e999}},{good}]"), Form::Json), lines);
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&body, Form::Json);
            let _ = read(&body, Form::Lines);
        }

        #[test]
        fn no_change_of_a_good_body_makes_it_panic(at in 0_usize..110, byte in proptest::num::u8::ANY) {
            let mut body = format!("[{GOOD},{GOOD}]").into_bytes();
            body[at] = byte;
            let _ = read(&body, Form::Json);
            let _ = read(&body, Form::Lines);
        }
    }
}
