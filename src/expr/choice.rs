//! Options that are one of several named values.

/// Gives an enum its table of names: `NAMES` and `ALL`, [`Display`](std::fmt::Display), and a [`FromStr`](std::str::FromStr) that
/// answers an unknown name with those that there are. What follows the table is the text of a value without a name.
macro_rules! choice {
    ($type:ident, $what:literal, $table:tt) => { $crate::expr::choice::choice!($type, $what, $table, |value| format!("{value:?}")); };
    ($type:ident, $what:literal, [$(($name:literal, $value:expr)),+ $(,)?], |$other:ident| $text:expr) => {
        impl $type {
            /// All values that have a name.
            pub const ALL: &'static [$type] = &[$($value),+];
            /// Their names, which are also their texts.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                let $other = self;
                let place = Self::ALL.iter().position(|value| value == self);
                f.write_str(&place.map_or_else(|| $text, |i| Self::NAMES[i].to_string()))
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::runtime::Error;

            fn from_str(text: &str) -> $crate::runtime::Result<$type> {
                let place = Self::NAMES.iter().position(|name| *name == text);
                let unknown = || $crate::runtime::error::unknown($what, text, Self::NAMES);
                place.map(|i| Self::ALL[i]).ok_or_else(|| $crate::runtime::Error::Invalid(unknown()))
            }
        }
    };
}
pub(crate) use choice;

#[cfg(test)]
mod tests {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Colour {
        Red,
        Grey(u8),
    }
    choice!(Colour, "colour", [("red", Colour::Red), ("grey-1", Colour::Grey(1))], |colour| format!("no {colour:?}"));

    #[test]
    fn names_are_texts_and_unknown_ones_are_answered() {
        for (value, name) in Colour::ALL.iter().zip(Colour::NAMES) {
            assert_eq!((value.to_string().as_str(), name.parse()), (*name, Ok(*value)));
        }
        assert_eq!(Colour::Grey(7).to_string(), "no Grey(7)");
        let error = "gray-1".parse::<Colour>().unwrap_err().to_string();
        assert_eq!(error, "invalid: there is no colour `gray-1`: there are red, grey-1; did you mean `grey-1`?");
    }
}
