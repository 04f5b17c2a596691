"""The starter pipeline that ``headrace init`` writes."""
