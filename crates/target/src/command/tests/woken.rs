//! Who was woken, by numbers.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Who was woken since this was asked last.
#[derive(Clone, Debug, Default)]
pub struct Woken(Arc<Mutex<Vec<usize>>>);

struct Own(usize, Woken);

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.1.0.lock().unwrap().push(self.0);
    }
}

impl Woken {
    pub fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Polls what is to be woken by this number.
    pub fn poll<F: Future>(&self, number: usize, future: Pin<&mut F>) -> Option<F::Output> {
        let waker = Waker::from(Arc::new(Own(number, self.clone())));
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}
