"""Text: folders of documents, classification and retrieval."""
