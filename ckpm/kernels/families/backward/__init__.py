"""The backward families: their keys in C++ words, the dispatch of their three stages, their launches to try."""
