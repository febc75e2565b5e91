//! The workload's parameters, with the study's values as defaults.

use serde::{Deserialize, Serialize};

use super::port::ROWS;
use crate::{Parameter, records, workload::in_range};

/// The size of both tables, and the condition of the join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Records of `usertable`.
    pub records: u64,
    /// Fields of a record.
    pub fields: u16,
    /// Length of a field in bytes.
    pub field_bytes: u32,
    /// Rows of `ext`.
    pub ext_rows: u32,
    /// The value in the query's `WHERE value =`, 0 to 9.
    pub value: u8,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { records: 10_000, fields: 10, field_bytes: 100, ext_rows: 100, value: 4 }
    }
}

/// A row of `ext`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext {
    /// The key of a record.
    pub key: String,
    /// The key's last digit, 0 to 9.
    pub value: u8,
}

impl Parameters {
    /// The layout of the records of `usertable`.
    #[must_use]
    pub fn layout(&self) -> records::Layout {
        let Self { records, fields, field_bytes, .. } = *self;
        records::Layout { records, fields, field_bytes, scans: false }
    }

    /// The rows of `ext`: keys of records at even distances.
    #[must_use]
    pub fn ext(&self) -> Vec<Ext> {
        let rows = u64::from(self.ext_rows);
        let row = |index| {
            let key = records::key_name(index * self.records / rows);
            let value = key.bytes().last().map_or(0, |digit| digit.wrapping_sub(b'0'));
            Ext { key, value }
        };
        (0..rows).map(row).collect()
    }

    /// Checks that the parameters describe a possible workload.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), String> {
        self.layout().check()?;
        in_range(&[
            ((1..=ROWS).contains(&(self.ext_rows as usize)), "ext_rows", "between 1 and 100,000"),
            (u64::from(self.ext_rows) <= self.records, "ext_rows", "at most records"),
            (self.value <= 9, "value", "between 0 and 9"),
        ])?;
        if self.ext().iter().any(|row| row.value == self.value) {
            return Ok(());
        }
        Err(format!(
            "none of the {} rows of ext has the value {}: choose another value or more rows",
            self.ext_rows, self.value
        ))
    }

    /// Every parameter with its default and meaning.
    #[must_use]
    pub fn described() -> Vec<Parameter> {
        let defaults = Self::default();
        vec![
            Parameter::new("records", defaults.records, "records of usertable"),
            Parameter::new("fields", defaults.fields, "fields of a record"),
            Parameter::new("field_bytes", defaults.field_bytes, "bytes of a field"),
            Parameter::new("ext_rows", defaults.ext_rows, "rows of ext"),
            Parameter::new("value", defaults.value, "the value of ext to select, 0 to 9"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::written;

    #[test]
    fn every_parameter_is_described_with_its_default() {
        let values = written(&Parameters::default());
        let described = Parameters::described();
        assert_eq!((values.len(), Parameters::default().check()), (described.len(), Ok(())));
        for parameter in described {
            assert_eq!(values[parameter.name].to_string(), parameter.default, "{}", parameter.name);
        }
    }

    #[test]
    fn about_a_tenth_of_ext_has_the_value() {
        let ext = Parameters::default().ext();
        let hits = ext.iter().filter(|row| row.value == 4).count();
        assert_eq!(ext.len(), 100);
        assert!((4..=18).contains(&hits), "{hits}");
        assert!(ext.iter().all(|row| row.value <= 9));
    }
}
