//! The libraries of functions by name, and their functions by theirs: FCALL finds a function among thousands at once.
//!
//! Kept by `Scripts` under its lock; FUNCTION and files that are loaded change it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use darter_command::Fault;
use darter_script::Library;

/// Libraries of which no two have a name, or a function, in common.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<String, Arc<Library>>,
    // Names in lower case: the case of a function's name means nothing.
    by_function: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Libraries {
    /// Whether there is a library called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The library of the function called `name`, and its place there.
    pub fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        if name.iter().any(u8::is_ascii_uppercase) {
            return self.by_function.get(&name.to_ascii_lowercase()).cloned();
        }
        self.by_function.get(name).cloned()
    }

    /// All libraries in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// Number of libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of functions.
    pub fn functions_len(&self) -> usize {
        self.by_function.len()
    }

    /// Whether `library` could be put in place of the one of its name. Errors: another one has one of its functions.
    fn check(&self, library: &Library) -> Result<(), Fault> {
        for function in &library.functions {
            let other = self.function(function.name.as_bytes());
            if other.is_some_and(|(other, _)| other.name != library.name) {
                return Err(Fault::Text(format!("ERR Function {} already exists", function.name).into()));
            }
        }
        Ok(())
    }

    /// Adds a library, in place of the one of its name. Errors: another one has one of its functions; nothing has
    /// changed then.
    pub fn insert(&mut self, library: Arc<Library>) -> Result<(), Fault> {
        self.check(&library)?;
        self.remove(&library.name);
        for (at, function) in library.functions.iter().enumerate() {
            let name = function.name.to_ascii_lowercase().into_bytes();
            self.by_function.entry(name).or_insert_with(|| (library.clone(), at));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes the library called `name`; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.by_function.remove(function.name.to_ascii_lowercase().as_bytes());
        }
        true
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Libraries::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_script::{Engine, ScriptWatch};

    fn library(name: &str, functions: &[&str]) -> Arc<Library> {
        let calls: String = functions
            .iter()
            .map(|f| format!("redis.register_function('{f}', function() return 1 end)\n"))
            .collect();
        let source = format!("#!lua name={name}\n{calls}");
        let mut engine = Engine::new(Arc::<ScriptWatch>::default()).expect("an engine");
        Arc::new(engine.load_library(source.as_bytes()).expect("a library"))
    }

    #[test]
    fn functions_are_found_and_belong_to_one_library() {
        let mut known = Libraries::default();
        assert!(known.insert(library("one", &["f", "Gee"])).is_ok());
        let refused = known.insert(library("two", &["h", "gEE"])).map_err(|fault| fault.line().into_owned());
        assert_eq!(refused, Err("ERR Function gEE already exists".to_owned()));
        assert!(!known.contains("two") && known.function(b"h").is_none());
        let found = |known: &Libraries, name: &[u8]| {
            known.function(name).map(|(library, at)| (library.name.clone(), at))
        };
        assert_eq!(found(&known, b"gee"), Some(("one".to_owned(), 1)));
        assert_eq!(found(&known, b"GEE"), Some(("one".to_owned(), 1)));
        // Another library of that name takes its place, with what it has.
        assert!(known.insert(library("one", &["h"])).is_ok());
        assert_eq!((known.len(), known.functions_len(), found(&known, b"f")), (1, 1, None));
        assert!(known.insert(library("two", &["f"])).is_ok());
        assert!(known.remove("one") && !known.remove("one") && found(&known, b"h").is_none());
        assert_eq!(known.iter().map(|library| library.name.as_str()).collect::<Vec<_>>(), ["two"]);
        known.clear();
        assert!(known.is_empty() && known.functions_len() == 0);
    }
}
