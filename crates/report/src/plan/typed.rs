//! How the value of an option is typed.

use std::fmt::Display;

use acidtest_model::{Bytes, Growth, PerSecond, Share, Span};

use super::{ArrivalKind, RefusedKind};

/// A value that an option can have.
pub(super) trait Typed {
    /// The words that are typed for it: several of a list, and none for a flag.
    fn typed(&self) -> Vec<String>;
}

/// Types that are typed as one word.
macro_rules! one_word {
    ($($type:ty),*) => {$(
        impl Typed for $type {
            fn typed(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        }
    )*};
}

one_word!(u32, u64, f64, String, Span, Bytes, PerSecond, Share, Growth, ArrivalKind, RefusedKind);

impl Typed for bool {
    fn typed(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<T: Typed> Typed for Option<T> {
    fn typed(&self) -> Vec<String> {
        self.as_ref().map_or_else(Vec::new, Typed::typed)
    }
}

impl<T: Display> Typed for Vec<T> {
    fn typed(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}
