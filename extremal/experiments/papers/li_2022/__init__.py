"""Li, Jin, Zhong, Hopcroft & Wang 2022 (NeurIPS): robust generalisation and expressive power."""
