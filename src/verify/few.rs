//! [`Few`]: a list that nearly always has one element, which lies in place; only further ones go to the heap.

/// What a request has one of, unless it has more.
#[derive(Clone, Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.more.push(item),
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few(items: &[u8]) -> Few<u8> {
        let mut few = Few::default();
        few.extend(items.iter().copied());
        few
    }

    #[test]
    fn it_is_a_list_in_the_order_of_what_came() {
        for items in [&[][..], &[1], &[1, 2], &[1, 2, 3]] {
            let few = few(items);
            assert_eq!(few.iter().copied().collect::<Vec<_>>(), items);
            assert_eq!((few.len(), few.is_empty()), (items.len(), items.is_empty()));
        }
    }
}
