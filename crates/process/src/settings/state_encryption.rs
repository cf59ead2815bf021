//! The keys under which a process encrypts what it keeps on its disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use super::{Fault, Secret};

/// The size of a key.
const KEY_BYTES: usize = 32;

/// What a key looks like in base64 or hex is far shorter; more of a file is not read.
const MAX_TEXT: u64 = 1024;

/// Base64 with or without the padding that tools differ in.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How files of state are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateEncryption {
    /// The first key is written with, all of them are read with. Without any, the files are not encrypted.
    pub keys: Vec<KeySource>,
}

/// Where a key is: in a file or here, one of them. 32 random bytes as base64 or hex, as `openssl rand -base64 32`
/// prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySource {
    /// A file that holds the key and nothing else.
    pub file: Option<PathBuf>,
    /// The key itself.
    pub key: Option<Secret<String>>,
}

/// A key as it is used.
pub type StateKey = Secret<[u8; KEY_BYTES]>;

// === impl StateEncryption ===

impl StateEncryption {
    /// The keys in order, from their files where they are in files. `path` is what the section is called, such as
    /// `state_encryption`.
    ///
    /// # Errors
    /// Every fault: of the keys that are none, that cannot be read, or that were named before.
    pub fn read(&self, path: &str) -> Result<Vec<StateKey>, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut keys: Vec<(usize, StateKey)> = Vec::new();
        for (position, source) in self.keys.iter().enumerate() {
            match source.read(&format!("{path}.keys[{position}]")) {
                Err(fault) => faults.push(fault),
                Ok(key) => match keys.iter().find(|(_, earlier)| *earlier == key) {
                    Some((earlier, _)) => {
                        let message =
                            format!("is the same key as {path}.keys[{earlier}]: remove one of them");
                        faults.push(Fault::new(format!("{path}.keys[{position}]"), message));
                    }
                    None => keys.push((position, key)),
                },
            }
        }
        if faults.is_empty() { Ok(keys.into_iter().map(|(_, key)| key).collect()) } else { Err(faults) }
    }
}

// === impl KeySource ===

impl KeySource {
    fn read(&self, path: &str) -> Result<StateKey, Fault> {
        let no_key =
            "is no key: give 32 random bytes as base64 or hex, such as `openssl rand -base64 32` prints";
        match (&self.file, &self.key) {
            (Some(file), None) => {
                let path = format!("{path}.file");
                let text = read_text(file).map_err(|error| {
                    let file = file.display();
                    let message =
                        format!("{file} cannot be read ({error}): check the path and its permissions");
                    Fault::new(path.clone(), message)
                })?;
                decode(&text).ok_or_else(|| Fault::new(path, format!("{} {no_key}", file.display())))
            }
            (None, Some(key)) => {
                decode(key.expose()).ok_or_else(|| Fault::new(format!("{path}.key"), no_key))
            }
            (None, None) => {
                Err(Fault::new(path, "is empty: name a file that holds the key, or give the key"))
            }
            (Some(_), Some(_)) => Err(Fault::new(path, "has both a file and a key: remove one of them")),
        }
    }
}

fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// 64 digits are hex: base64 of so many letters would be 48 bytes.
fn decode(text: &str) -> Option<StateKey> {
    let text = text.trim();
    let bytes = if text.len() == 2 * KEY_BYTES { from_hex(text)? } else { BASE64.decode(text).ok()? };
    bytes.try_into().ok().map(Secret::new)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>()?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE64_OF_ONES: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn inline(text: &str) -> KeySource {
        KeySource { file: None, key: Some(Secret::new(text.to_owned())) }
    }

    fn in_file(file: impl Into<PathBuf>) -> KeySource {
        KeySource { file: Some(file.into()), key: None }
    }

    fn read(keys: Vec<KeySource>) -> Result<Vec<StateKey>, Vec<String>> {
        let read = StateEncryption { keys }.read("state_encryption");
        read.map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn keys_come_from_files_and_settings_as_base64_or_hex_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, format!("{}\n", "0aFF".repeat(16))).unwrap();
        let hex: Vec<u8> = [0x0a, 0xff].repeat(16);
        let keys = read(vec![in_file(file), inline(BASE64_OF_ONES)]).unwrap();
        assert_eq!(keys[0].expose(), &hex[..]);
        assert_eq!(keys[1].expose(), &[1; 32]);
        assert_eq!(read(vec![inline(BASE64_OF_ONES.trim_end_matches('='))]).unwrap()[0].expose(), &[1; 32]);
        assert_eq!(read(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn every_fault_names_its_key_and_none_shows_one() {
        let directory = tempfile::tempdir().unwrap();
        let short = directory.path().join("short");
        std::fs::write(&short, "c2VjcmV0").unwrap();
        let faults = read(vec![
            inline(BASE64_OF_ONES),
            inline("c2VjcmV0"),
            in_file(directory.path().join("missing")),
            in_file(short),
            inline(&"01".repeat(32)),
            KeySource::default(),
            KeySource { file: Some("f".into()), ..inline("x") },
            inline(&"0+".repeat(32)),
        ]);
        let faults = faults.unwrap_err();
        let begins = ["[1].key: ", "[2].file: ", "[3].file: ", "[4]: ", "[5]: ", "[6]: ", "[7].key: "];
        assert_eq!(faults.len(), begins.len(), "{faults:#?}");
        for (fault, begin) in faults.iter().zip(begins) {
            assert!(fault.starts_with(&format!("state_encryption.keys{begin}")), "{fault}");
            assert!(
                !fault.contains("c2VjcmV0") && !fault.contains("0101") && !fault.contains("0+"),
                "{fault}"
            );
        }
        assert!(faults[3].contains("the same key as state_encryption.keys[0]"), "{}", faults[3]);
        assert!(faults[2].contains("openssl rand"), "{}", faults[2]);
    }
}
