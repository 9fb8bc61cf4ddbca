// Providers that sign with a key pair or with a token.

export const asymmetric = [];
