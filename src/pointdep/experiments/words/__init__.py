"""The paper's third application: the sound and the text of words (Table 2, Figure 3)."""
