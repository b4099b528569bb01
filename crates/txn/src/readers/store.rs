//! Things under small numbers that are used again.

/// Things, each under a number of its own.
#[derive(Debug)]
pub struct Store<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Store<T> {
    fn default() -> Store<T> {
        Store { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Store<T> {
    /// Keeps a thing; returns its number. Shape: fewer than 2^32 things.
    pub fn insert(&mut self, thing: T) -> u32 {
        let number = self.free.pop().unwrap_or(self.things.len() as u32);
        match self.things.get_mut(number as usize) {
            Some(place) => *place = Some(thing),
            None => self.things.push(Some(thing)),
        }
        number
    }

    /// The thing under a number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    /// The thing under a number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.things.get_mut(number as usize)?.as_mut()
    }

    /// Takes the thing under a number away.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.things.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }
}

#[cfg(test)]
impl<T> Store<T> {
    /// Number of things.
    pub fn len(&self) -> usize {
        self.things.len() - self.free.len()
    }
}
