//! The environment: `DFLY_name`, with the flag's exact name and case, and the `FLAGS_name` that `--fromenv` asks for.

use super::{CommandLine, Loader, unknown_name};
use crate::table::{self, SettingId};
use std::ffi::OsStr;

impl Loader {
    /// Reads every `DFLY_` variable.
    pub(super) fn read_environment(&mut self) -> Result<(), CommandLine> {
        let mut variables = Vec::new();
        for (key, value) in &self.environment {
            let Some(key) = key.to_str().filter(|key| key.starts_with("DFLY_")) else { continue };
            variables.push((key.to_owned(), text(key, value)?));
        }
        for (key, value) in variables {
            let name = key.strip_prefix("DFLY_").unwrap_or_default();
            match name {
                "DEV_ENV" => {}
                "PASSWORD" => self.password = Some(value),
                "flagfile" => self.read_flag_file(&value)?,
                _ => {
                    let id = find_exactly(name).ok_or_else(|| {
                        unknown_name(&format!("environment variable '{key}'"), name, "DFLY_")
                    })?;
                    self.give_text(id, &value).map_err(|error| CommandLine(format!("{key}: {error}")))?;
                }
            }
        }
        Ok(())
    }

    /// Reads the variable `FLAGS_name`.
    pub(super) fn read_flags_variable(&mut self, name: &str, required: bool) -> Result<(), CommandLine> {
        let id = table::find_id(name).ok_or_else(|| unknown_name(&format!("flag '--{name}'"), name, "--"))?;
        let key = format!("FLAGS_{name}");
        let found = self.environment.iter().find(|(other, _)| other.to_str() == Some(&key));
        match found {
            Some((_, value)) => {
                let value = text(&key, value)?;
                self.give_text(id, &value).map_err(|error| CommandLine(format!("{key}: {error}")))
            }
            None if required => Err(CommandLine(format!("--fromenv={name}: there is no variable {key}"))),
            None => Ok(()),
        }
    }
}

fn text(key: &str, value: &OsStr) -> Result<String, CommandLine> {
    value.to_str().map(str::to_owned).ok_or_else(|| CommandLine(format!("{key} is not UTF-8")))
}

/// The setting of exactly this name, including case; underscores replace dashes, which variables cannot contain.
fn find_exactly(name: &str) -> Option<SettingId> {
    let id = table::find_id(name)?;
    let setting = table::setting(id);
    let mut names = std::iter::once(&setting.name).chain(setting.aliases);
    names.any(|known| known.replace('-', "_") == name.replace('-', "_")).then_some(id)
}
