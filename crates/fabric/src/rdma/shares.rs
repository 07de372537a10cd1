//! What the peers of each address may have of something that a reactor has.

use core::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use reactor::budget::{Account, Ledger};

/// So many bytes, of which each address has an account.
pub struct Shares {
    ledger: Rc<Ledger>,
    accounts: RefCell<HashMap<IpAddr, Weak<Account>>>,
}

impl Shares {
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { ledger: Ledger::new(bytes), accounts: RefCell::default() }
    }

    /// That of an address.
    pub fn account(&self, peer: IpAddr) -> Rc<Account> {
        let mut accounts = self.accounts.borrow_mut();
        if let Some(known) = accounts.get(&peer).and_then(Weak::upgrade) {
            return known;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = Account::new(&self.ledger);
        accounts.insert(peer, Rc::downgrade(&account));
        account
    }
}
