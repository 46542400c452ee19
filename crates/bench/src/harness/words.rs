//! Enumerations that people write: on the command line, and in result files.

/// Enumerations whose variants have one name everywhere.
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis $name:ident ($what:literal) {
        $($(#[$of:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[$of])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, the default first.
            $vis const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name on the command line and in result files.
            $vis const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::harness::error::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let known = $name::ALL.iter().find(|known| known.name() == text);
                known.copied().ok_or_else(|| {
                    let names = $name::ALL.iter().map(|known| known.name());
                    let names = Vec::from_iter(names).join(", ");
                    $crate::harness::error::Error::Config(format!("unknown {} '{text}': write one of {names}", $what))
                })
            }
        }
    };
}
pub(crate) use words;

/// Whether a field has the value that older results were measured with.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
